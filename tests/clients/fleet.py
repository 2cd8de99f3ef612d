"""A fleet on free loopback ports: Redis, stub engines, sidecars, frontends. Everything ends with the test."""

import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from engine import Engine

BINARY = os.environ["TIDEGATE_BIN"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(what, condition, seconds=20):
    """Waits for a condition, and says what it waited for if it never came."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def get(port, path, host="127.0.0.1"):
    """(status, headers, body); status 0 if nobody listens."""
    c = http.client.HTTPConnection(host, port, timeout=10)
    try:
        c.request("GET", path)
        r = c.getresponse()
        return r.status, r.headers, r.read()
    except OSError:
        return 0, {}, b""
    finally:
        c.close()


class Fleet:
    """`workers`: model -> how many; each has an engine of engine.py in `engines[worker id]`."""

    def __init__(self, workers, frontends=2, limit=1, queue=0, frontend_flags=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tidegate-clients-"))
        self.processes = {}
        self.engines = {}
        self.ports = {}
        try:
            self._start(workers, frontends, limit, queue, frontend_flags)
        except BaseException:
            self.stop()
            raise

    def _start(self, workers, frontends, limit, queue, frontend_flags):
        self.redis = free_port()
        server = shutil.which("redis-server") or shutil.which("valkey-server")
        self.spawn("redis", [server, "--port", str(self.redis), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)])
        until("Redis answers", lambda: self.redis_cli("PING") == "PONG")
        self.url = f"redis://127.0.0.1:{self.redis}/0"
        for model, count in workers.items():
            for n in range(count):
                self.worker(model, f"{model}-{n}", limit, queue)
        for n in range(frontends):
            self.frontend(f"frontend-{n}", frontend_flags)
        self.frontends = [self.ports[f"frontend-{n}"] for n in range(frontends)]
        for port in self.frontends:
            for model in workers:
                until(f"{model} is listed", lambda m=model, p=port: m.encode() in get(p, "/v1/models")[2])

    def spawn(self, name, command):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def worker(self, model, name, limit, queue):
        self.engines[name] = Engine(model)
        port = self.ports[name] = free_port()
        command = [BINARY, "worker", "--model", model, "--worker-id", name, "--listen", f"127.0.0.1:{port}"]
        command += ["--engine-url", self.engines[name].url, "--redis-url", self.url]
        command += ["--engine-request-limit", str(limit), "--request-queue-limit", str(queue), "--drain-seconds", "5"]
        self.spawn(name, command)

    def frontend(self, name, flags=()):
        port = self.ports[name] = self.ports.get(name) or free_port()
        command = [BINARY, "frontend", "--http-listen", f"127.0.0.1:{port}", "--redis-url", self.url, *flags]
        self.spawn(name, command)
        until(f"{name} is ready", lambda: get(port, "/ready")[0] == 200)

    def redis_cli(self, *words):
        command = ["redis-cli", "-p", str(self.redis), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()

    def inflight(self, model):
        """All admitted requests of a model, as Redis counts them."""
        return int(self.redis_cli("HGET", f"tidegate:{{{model}}}:stats", "inflight_total") or 0)

    def idle(self, model, seconds=5):
        until(f"no request of {model} is counted", lambda: self.inflight(model) == 0, seconds)

    def terminate(self, name):
        self.processes[name].send_signal(signal.SIGTERM)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self):
        # Redis last: sidecars and frontends say goodbye to it.
        for p in self.processes.values():
            p.kill()
        for p in self.processes.values():
            p.wait()
        for engine in self.engines.values():
            engine.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def chat(model, **more):
    """The bytes of a chat request."""
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "hello"}], **more}).encode()
