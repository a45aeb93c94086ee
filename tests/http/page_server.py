"""A server that plays Choral for its console and misbehaves on demand: the page's files are a real server's, the API's answers are what the
last message asks for. For tests of what a browser shows when something goes wrong."""

import contextlib
import http.client
import http.server
import json
import sys
import threading
import time

MARKDOWN = """# Title

Some *text*, `code` and $a^2 + b^2$.

$$\\int_0^1 x\\,dx = \\frac{1}{2}$$

```python
def answer():
    return 42  # of course
```

| a | b |
|---|---|
| 1 | 2 |

<script>window.hurt = 1</script><img src="http://other.example/x.png" onerror="window.hurt = 2">
![seen](http://other.example/y.png) [link](javascript:window.hurt=3)
<a href="http://other.example/" onclick="window.hurt=4" style="position:fixed">there</a>
"""

WEATHER = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}


def chunk(finish=None, **delta):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "base",
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def call_piece(text):
    return chunk(tool_calls=[{"index": 0, "function": {"arguments": text}}])


USAGE = {**chunk(), "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
DONE = [USAGE, "[DONE]"]
SCRIPTS = {
    "break": [chunk(content="The first "), chunk(content="half")],
    "error event": [chunk(content="Some"), {"error": {"message": "the engine fell over", "code": "internal_error", "status": 500}}],
    "garbage": [chunk(content="Some"), "{no json"],
    "think": [chunk(reasoning_content="Let me "), chunk(reasoning_content="think."), chunk(content="The answer."), chunk("stop"), *DONE],
    "think as vllm": [chunk(reasoning="Hm."), chunk(content="Yes."), chunk("stop"), *DONE],
    "call": [chunk(tool_calls=[WEATHER]), call_piece('{"city": '), call_piece('"Rome"}'), chunk("tool_calls"), *DONE],
    "markdown": [*(chunk(content=line) for line in MARKDOWN.splitlines(keepends=True)), chunk("stop"), *DONE],
    "slow": [chunk(content="word ")] * 400,
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def give(self, status, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/v1/models":
            return self.give(200, {"data": [{"id": "fake", "parent": None}, {"id": "one", "parent": "fake"}]})
        if path == "/v1/engine":
            return self.give(200, {"model": {"has_chat_template": True}})
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.server.real_port)) as real:
            real.request("GET", path, headers={"Accept-Encoding": "gzip"})
            answer = real.getresponse()
            body = answer.read()
            kept = {k: answer.headers[k] for k in ("Content-Encoding", "Content-Security-Policy") if answer.headers[k]}
            self.give(answer.status, body, answer.headers["Content-Type"], **kept)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        wanted = body["messages"][-1]["content"]
        if wanted == "refuse":
            return self.give(400, {"error": {"message": "the prompt is too long", "code": "context_length_exceeded"}})
        if wanted == "html":
            return self.give(502, b"<h1>Bad gateway</h1>", "text/html")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            for event in SCRIPTS.get(wanted, [chunk(content=f"You said: {wanted}"), chunk("stop"), *DONE]):
                data = event if isinstance(event, str) else json.dumps(event)
                self.wfile.write(f": a comment\r\ndata: {data}\r\n\r\n".encode())
                self.wfile.flush()
                time.sleep(0.02 if wanted == "slow" else 0)
        return None


class Listener(http.server.ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # a browser that leaves is none of our errors
            super().handle_error(request, client_address)


class PageServer:
    def __init__(self, real_port):
        self.http = Listener(("127.0.0.1", 0), Handler)
        self.http.real_port = real_port
        self.http.bodies = self.bodies = []
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
