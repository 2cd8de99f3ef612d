"""The official OpenAI client."""

import threading
import time
import unittest

import httpx2
import openai
from fleet import Fleet, until

USER = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet({"llama": 1, "gone": 1}, frontend_flags=["--max-body-bytes", "100000"])
        cls.addClassCleanup(cls.fleet.stop)
        cls.engine = cls.fleet.engines["llama-0"]

    def setUp(self):
        self.fleet.idle("llama")
        self.engine.gate.set()
        self.engine.pace = 0
        self.engine.cancelled.clear()

    def client(self, frontend=0, retries=0, **more):
        port = self.fleet.frontends[frontend]
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", max_retries=retries, timeout=30, **more)
        self.addCleanup(client.close)
        return client

    def hold(self):
        """Takes the only slot, until the engine's gate opens."""
        self.engine.gate.clear()
        other = self.client(1)
        done = threading.Thread(target=lambda: other.chat.completions.create(model="llama", messages=USER))
        done.start()
        self.addCleanup(done.join)
        self.addCleanup(self.engine.gate.set)
        until("the slot is taken", lambda: self.fleet.inflight("llama") == 1)

    def test_plain(self):
        answer = self.client().chat.completions.create(model="llama", messages=USER)
        self.assertEqual(answer.choices[0].message.content, "hello there")
        self.assertEqual(answer.usage.total_tokens, 5)

    def test_headers_of_a_decided_answer(self):
        raw = self.client().chat.completions.with_raw_response.create(
            model="llama", messages=USER, extra_headers={"x-request-id": "mine"}
        )
        self.assertEqual(raw.headers["x-request-id"], "mine")
        self.assertEqual(raw.headers["x-tidegate-worker"], "llama-0")
        self.assertGreater(int(raw.headers["x-tidegate-revision"]), 0)

    def test_models(self):
        names = sorted(model.id for model in self.client().models.list())
        self.assertIn("llama", names)
        self.assertEqual(self.client().models.retrieve("llama").id, "llama")

    def test_embeddings(self):
        answer = self.client().embeddings.create(model="llama", input="x", encoding_format="float")
        self.assertEqual(answer.data[0].embedding, [0.5, -0.5])

    def test_stream(self):
        chunks = list(self.client().chat.completions.create(model="llama", messages=USER, stream=True, max_tokens=40))
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        self.assertEqual(text, "".join(f"w{n} " for n in range(40)))
        self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")

    def test_tool_calls_both_ways(self):
        asked = [*USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Ž"}'}}]}]
        asked.append({"role": "tool", "tool_call_id": "call_0", "content": "12 °C, 雨"})
        answer = self.client().chat.completions.create(model="llama", messages=asked, tools=TOOLS)
        self.assertEqual(answer.choices[0].message.tool_calls[0].function.arguments, '{"city":"Zürich","unit":"°C"}')
        self.assertIn("12 °C, 雨".encode(), self.engine.bodies[-1], "the engine got what the client sent")

    def test_tool_calls_in_a_stream(self):
        stream = self.client().chat.completions.create(model="llama", messages=USER, tools=TOOLS, stream=True)
        parts = [c.choices[0].delta.tool_calls for c in stream]
        arguments = "".join(p[0].function.arguments for p in parts if p)
        self.assertEqual(arguments, '{"city":"Zürich","unit":"°C"}')

    def test_a_cancelled_stream_gives_its_slot_back(self):
        self.engine.pace = 0.02
        stream = self.client().chat.completions.create(model="llama", messages=USER, stream=True, max_tokens=2000)
        next(iter(stream))
        self.assertEqual(self.fleet.inflight("llama"), 1)
        stream.close()
        self.fleet.idle("llama", 3)
        self.assertTrue(self.engine.cancelled.wait(3), "the engine saw that nobody listens")

    def test_a_529_is_retried_and_succeeds_because_the_wait_was_right(self):
        seen = []
        hook = lambda response: seen.append((time.monotonic(), response.status_code, dict(response.headers)))
        client = self.client(retries=1, http_client=httpx2.Client(event_hooks={"response": [hook]}))
        self.hold()
        # The client's own first wait is at most half a second: with it, the one retry would come too early.
        release = threading.Timer(0.7, self.engine.gate.set)
        release.start()
        answer = client.chat.completions.create(model="llama", messages=USER)
        self.assertEqual(answer.choices[0].message.content, "hello there")
        self.assertEqual([status for _, status, _ in seen], [529, 200])
        waited = seen[1][0] - seen[0][0]
        self.assertGreaterEqual(waited, int(seen[0][2]["retry-after-ms"]) / 1000)

    def test_529_without_retries(self):
        self.hold()
        for frontend in (0, 1):
            with self.assertRaises(openai.InternalServerError) as caught:
                self.client(frontend).chat.completions.create(model="llama", messages=USER)
            error = caught.exception
            self.assertEqual(error.status_code, 529)
            self.assertEqual(error.body["reason"], "at_capacity")
            self.assertEqual((error.type, error.body["code"]), ("Overloaded", 529))
            self.assertIn("Service temporarily overloaded", str(error))
            seconds, ms = int(error.response.headers["retry-after"]), int(error.response.headers["retry-after-ms"])
            self.assertTrue(1 <= seconds <= 60 and seconds == -(-ms // 1000), (seconds, ms))

    def test_529_of_a_stream_is_no_stream(self):
        self.hold()
        with self.assertRaises(openai.InternalServerError) as caught:
            self.client().chat.completions.create(model="llama", messages=USER, stream=True)
        self.assertEqual(caught.exception.status_code, 529)
        self.assertTrue(caught.exception.response.headers["content-type"].startswith("application/json"))

    def test_404(self):
        # A fresh index says 503: nobody may have registered yet.
        def refused():
            try:
                self.client().chat.completions.create(model="nobody", messages=USER)
            except openai.NotFoundError as error:
                return error
            except openai.InternalServerError:
                return None

        error = until("an unknown model is 404", refused, 10)
        self.assertEqual(error.body["reason"], "model_not_found")

    def test_413(self):
        big = [{"role": "user", "content": "x" * 200_000}]
        with self.assertRaises(openai.APIStatusError) as caught:
            self.client().chat.completions.create(model="llama", messages=big)
        self.assertEqual(caught.exception.status_code, 413)

    def test_503(self):
        self.fleet.terminate("gone-0")
        self.fleet.processes["gone-0"].wait(20)
        with self.assertRaises(openai.InternalServerError) as caught:
            self.client().chat.completions.create(model="gone", messages=USER)
        self.assertEqual(caught.exception.status_code, 503)
        self.assertEqual(caught.exception.body["reason"], "no_workers")
        self.assertGreaterEqual(int(caught.exception.response.headers["retry-after"]), 1)
