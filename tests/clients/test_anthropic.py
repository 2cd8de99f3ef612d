"""The official Anthropic client."""

import threading
import time
import unittest

import anthropic
import httpx2
from fleet import Fleet, until

USER = [{"role": "user", "content": "hello"}]
TOOLS = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]


class Anthropic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet({"claude": 1, "gone": 1}, frontend_flags=["--max-body-bytes", "100000"])
        cls.addClassCleanup(cls.fleet.stop)
        cls.engine = cls.fleet.engines["claude-0"]

    def setUp(self):
        self.fleet.idle("claude")
        self.engine.gate.set()
        self.engine.pace = 0
        self.engine.cancelled.clear()

    def client(self, frontend=0, retries=0, **more):
        url = f"http://127.0.0.1:{self.fleet.frontends[frontend]}"
        client = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=retries, timeout=30, **more)
        self.addCleanup(client.close)
        return client

    def ask(self, model="claude", frontend=0, messages=USER, **more):
        return self.client(frontend).messages.create(model=model, max_tokens=5, messages=messages, **more)

    def hold(self):
        self.engine.gate.clear()
        other = self.client(1)
        done = threading.Thread(target=lambda: other.messages.create(model="claude", max_tokens=5, messages=USER))
        done.start()
        self.addCleanup(done.join)
        self.addCleanup(self.engine.gate.set)
        until("the slot is taken", lambda: self.fleet.inflight("claude") == 1)

    def test_plain(self):
        self.assertEqual(self.ask().content[0].text, "hello there")

    def test_count_tokens(self):
        self.assertEqual(self.client().messages.count_tokens(model="claude", messages=USER).input_tokens, 3)

    def test_stream(self):
        with self.client().messages.stream(model="claude", max_tokens=30, messages=USER) as stream:
            self.assertEqual("".join(stream.text_stream), "".join(f"w{n} " for n in range(30)))

    def test_tool_use_both_ways(self):
        asked = [
            *USER,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_0", "name": "get_weather", "input": {"city": "Ž"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_0", "content": "12 °C"}]},
        ]
        answer = self.ask(messages=asked, tools=TOOLS)
        self.assertEqual(answer.content[0].input, {"city": "Zürich"})
        self.assertIn("12 °C".encode(), self.engine.bodies[-1])

    def test_a_cancelled_stream_gives_its_slot_back(self):
        self.engine.pace = 0.02
        with self.client().messages.stream(model="claude", max_tokens=2000, messages=USER) as stream:
            next(iter(stream.text_stream))
            self.assertEqual(self.fleet.inflight("claude"), 1)
        self.fleet.idle("claude", 3)
        self.assertTrue(self.engine.cancelled.wait(3), "the engine saw that nobody listens")

    def test_a_529_is_retried_and_succeeds_because_the_wait_was_right(self):
        seen = []
        hook = lambda response: seen.append((time.monotonic(), response.status_code, dict(response.headers)))
        client = self.client(retries=1, http_client=httpx2.Client(event_hooks={"response": [hook]}))
        self.hold()
        release = threading.Timer(0.7, self.engine.gate.set)
        release.start()
        answer = client.messages.create(model="claude", max_tokens=5, messages=USER)
        self.assertEqual(answer.content[0].text, "hello there")
        self.assertEqual([status for _, status, _ in seen], [529, 200])
        self.assertGreaterEqual(seen[1][0] - seen[0][0], int(seen[0][2]["retry-after-ms"]) / 1000)

    def test_529_without_retries(self):
        self.hold()
        with self.assertRaises(anthropic.OverloadedError) as caught:
            self.ask()
        error = caught.exception
        self.assertEqual(error.status_code, 529)
        self.assertEqual(error.body["error"]["type"], "overloaded_error")
        self.assertTrue(error.body["request_id"])

    def test_404(self):
        def refused():
            try:
                self.ask("nobody")
            except anthropic.NotFoundError as error:
                return error
            except anthropic.ServiceUnavailableError:
                return None

        error = until("an unknown model is 404", refused, 10)
        self.assertEqual(error.body["error"]["type"], "not_found_error")

    def test_413(self):
        with self.assertRaises(anthropic.RequestTooLargeError):
            self.ask(messages=[{"role": "user", "content": "x" * 200_000}])

    def test_503(self):
        self.fleet.terminate("gone-0")
        self.fleet.processes["gone-0"].wait(20)
        with self.assertRaises(anthropic.ServiceUnavailableError) as caught:
            self.ask("gone")
        self.assertEqual(caught.exception.body["type"], "error")
