"""curl, HTTP/1.0, and HAProxy in front."""

import json
import pathlib
import socket
import subprocess
import threading
import unittest

from fleet import Fleet, chat, free_port, get, until

HAPROXY = """
global
    stats socket {socket} level admin
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server 60s
    timeout check 500ms
    timeout http-keep-alive 60s
    retries 3
    option redispatch 1
    retry-on conn-failure empty-response
frontend clients
    bind 127.0.0.1:{port}
    default_backend tidegate
backend tidegate
    balance roundrobin
    http-reuse safe
    option httpchk GET /ready
    http-check expect status 200
    default-server check inter 200ms fall 2 rise 1
    server frontend-0 127.0.0.1:{a}
    server frontend-1 127.0.0.1:{b}
"""


class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet({"llama": 2}, limit=4, queue=2, frontend_flags=["--drain-pause-seconds", "2"])
        cls.addClassCleanup(cls.fleet.stop)
        cls.port = cls.fleet.frontends[0]
        cls.folder = pathlib.Path(cls.fleet.folder)
        (cls.folder / "chat.json").write_bytes(chat("llama"))
        (cls.folder / "big.json").write_bytes(chat("llama", padding="x" * 3_000_000))

    def setUp(self):
        self.fleet.idle("llama")
        for engine in self.fleet.engines.values():
            engine.gate.set()
            engine.pace = 0

    def curl(self, *words, port=None, path="/v1/chat/completions", body="chat.json", times=1):
        url = f"http://127.0.0.1:{port or self.port}{path}"
        command = ["curl", "-sS", "-m", "20", "-H", "content-type: application/json", *words]
        command += ["--data-binary", f"@{self.folder / body}"] + [url] * times
        done = subprocess.run(command, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def raw(self, data, port=None):
        """What comes back for these bytes, until the other side closes."""
        with socket.create_connection(("127.0.0.1", port or self.port), timeout=10) as s:
            s.sendall(data)
            out = b""
            while piece := s.recv(65536):
                out += piece
            return out

    def test_curl(self):
        self.assertEqual(json.loads(self.curl())["choices"][0]["message"]["content"], "hello there")

    def test_curl_uses_one_connection_for_many_requests(self):
        out = self.curl("-o", "/dev/null", "-o", "/dev/null", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", times=3)
        self.assertEqual(out.split(b"\n")[:3], [b"200 1", b"200 0", b"200 0"])

    def test_curl_waits_for_100_continue(self):
        out = self.curl("-v", "-H", "expect: 100-continue", "--stderr", "-", body="big.json")
        self.assertIn(b"HTTP/1.1 100 Continue", out)
        self.assertIn(b"hello there", out)

    def test_curl_sends_chunks(self):
        out = self.curl("-H", "transfer-encoding: chunked", body="big.json")
        self.assertEqual(json.loads(out)["object"], "chat.completion")
        sent = (self.folder / "big.json").read_bytes()
        got = [e.bodies[-1] for e in self.fleet.engines.values() if e.bodies]
        self.assertIn(sent, got, "the engine got the same bytes")

    def test_http_1_0(self):
        self.assertEqual(json.loads(self.curl("-0"))["object"], "chat.completion")

    def test_http_1_0_stream_ends_with_the_connection(self):
        body = chat("llama", stream=True, max_tokens=3)
        head = b"POST /v1/chat/completions HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        answer = self.raw(head % len(body) + body)
        status, _, rest = answer.partition(b"\r\n")
        self.assertIn(b" 200", status)
        headers, _, text = rest.partition(b"\r\n\r\n")
        self.assertNotIn(b"transfer-encoding", headers.lower())
        self.assertTrue(text.endswith(b"data: [DONE]\n\n"), text[-80:])

    def test_head_is_get_without_a_body(self):
        answer = self.raw(b"HEAD /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        self.assertTrue(answer.startswith(b"HTTP/1.1 200"), answer)
        self.assertTrue(answer.endswith(b"\r\n\r\n"))

    def haproxy(self):
        port, control = free_port(), self.folder / "haproxy.sock"
        a, b = self.fleet.frontends
        (self.folder / "haproxy.cfg").write_text(HAPROXY.format(socket=control, port=port, a=a, b=b))
        self.fleet.spawn("haproxy", ["haproxy", "-db", "-f", str(self.folder / "haproxy.cfg")])
        self.addCleanup(self.fleet.processes["haproxy"].wait)
        self.addCleanup(self.fleet.processes["haproxy"].kill)
        self.control = control
        until("HAProxy answers", lambda: get(port, "/live")[0] == 200)
        return port

    def states(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.control))
            s.sendall(b"show stat\n")
            text = b""
            while piece := s.recv(65536):
                text += piece
        rows = [line.split(",") for line in text.decode().splitlines() if line.startswith("tidegate,frontend-")]
        return {row[1]: row[17] for row in rows}

    def test_haproxy_keeps_connections_and_follows_ready(self):
        port = self.haproxy()
        up = {"frontend-0": "UP", "frontend-1": "UP"}
        until("both frontends are up", lambda: self.states() == up)
        out = self.curl("-o", "/dev/null", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", port=port, times=2)
        self.assertEqual(out.split(b"\n")[:2], [b"200 1", b"200 0"])

        # A frontend goes, under load: nobody notices.
        answers, stop = [], threading.Event()

        def load():
            while not stop.is_set():
                answers.append(self.curl("-o", "/dev/null", "-w", "%{http_code}", port=port))

        threads = [threading.Thread(target=load) for _ in range(3)]
        for t in threads:
            t.start()
        try:
            self.fleet.terminate("frontend-1")
            until("HAProxy has taken it out", lambda: self.states()["frontend-1"].startswith("DOWN"))
            self.assertEqual(self.fleet.processes["frontend-1"].wait(30), 0)
            self.fleet.frontend("frontend-1", ["--drain-pause-seconds", "2"])
            until("both are up again", lambda: self.states() == up)
        finally:
            stop.set()
            for t in threads:
                t.join()
        self.assertGreater(len(answers), 10)
        self.assertLessEqual(set(answers), {b"200", b"529"})
        self.fleet.idle("llama")

    def test_a_stream_through_haproxy_that_its_client_leaves(self):
        port = self.haproxy()
        for engine in self.fleet.engines.values():
            engine.pace = 0.02
        body = chat("llama", stream=True, max_tokens=2000)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            s.sendall(head % len(body) + body)
            self.assertIn(b"200 OK", s.recv(100))
            self.assertEqual(self.fleet.inflight("llama"), 1)
        self.fleet.idle("llama", 5)
