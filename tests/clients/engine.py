"""A stub engine that speaks both dialects, holds answers back when told to, and remembers what it was sent."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOL_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city":"Zürich","unit":"°C"}'},
}


def chat_answer(model, body):
    message = {"role": "assistant", "content": "hello there"}
    if body.get("tools"):
        message = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    reason = "tool_calls" if body.get("tools") else "stop"
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    }  # fmt: skip


def chat_chunks(model, body):
    def chunk(delta, reason=None):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}

    if body.get("tools"):
        arguments = TOOL_CALL["function"]["arguments"]
        yield chunk({"role": "assistant", "tool_calls": [{"index": 0, **TOOL_CALL, "function": {"name": "get_weather", "arguments": ""}}]})
        for letter in arguments:
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": letter}}]})
        yield chunk({}, "tool_calls")
    else:
        for n in range(body.get("max_tokens") or 5):
            yield chunk({"content": f"w{n} "})
        yield chunk({}, "stop")


def message_answer(model, body):
    content = [{"type": "text", "text": "hello there"}]
    if body.get("tools"):
        content = [{"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Zürich"}}]
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": content, "stop_sequence": None,
        "stop_reason": "tool_use" if body.get("tools") else "end_turn", "usage": {"input_tokens": 3, "output_tokens": 2},
    }  # fmt: skip


def message_events(model, body):
    start = {**message_answer(model, {}), "content": [], "stop_reason": None}
    yield "message_start", {"type": "message_start", "message": start}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for n in range(body.get("max_tokens") or 5):
        delta = {"type": "text_delta", "text": f"w{n} "}
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    yield "message_delta", {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 5},
    }
    yield "message_stop", {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(b"{}")

    def do_POST(self):
        engine = self.server.engine
        raw = self.read_body()
        engine.bodies.append(raw)
        engine.headers.append(dict(self.headers))
        try:
            body = json.loads(raw)
        except ValueError:
            return self.answer(b'{"error":"not JSON"}', 400)
        engine.gate.wait(60)
        try:
            if self.path.startswith("/v1/messages/count_tokens"):
                self.answer(json.dumps({"input_tokens": 3}).encode())
            elif self.path.startswith("/v1/messages"):
                self.messages(body)
            elif self.path.startswith("/v1/embeddings"):
                data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}]
                usage = {"prompt_tokens": 1, "total_tokens": 1}
                self.answer(json.dumps({"object": "list", "data": data, "model": engine.model, "usage": usage}).encode())
            else:
                self.chat(body)
        except OSError:
            engine.cancelled.set()
            self.close_connection = True

    def read_body(self):
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            out = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                out += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return out
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, data, status=200):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events):
        engine = self.server.engine
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
            if engine.pace:
                engine.ended.wait(engine.pace)
        self.wfile.write(b"0\r\n\r\n")

    def chat(self, body):
        model = self.server.engine.model
        if body.get("stream"):
            chunks = (b"data: " + json.dumps(c, ensure_ascii=False).encode() + b"\n\n" for c in chat_chunks(model, body))
            self.stream([*chunks, b"data: [DONE]\n\n"])
        else:
            self.answer(json.dumps(chat_answer(model, body), ensure_ascii=False).encode())

    def messages(self, body):
        model = self.server.engine.model
        if body.get("stream"):
            events = message_events(model, body)
            self.stream(b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps(data).encode()) for name, data in events)
        else:
            self.answer(json.dumps(message_answer(model, body), ensure_ascii=False).encode())


class Engine:
    """One engine. `gate` cleared: answers wait. `pace`: seconds between the events of a stream."""

    def __init__(self, model):
        self.model = model
        self.bodies, self.headers = [], []
        self.gate, self.cancelled, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.gate.set()
        self.pace = 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.server.engine = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def stop(self):
        self.gate.set()
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
