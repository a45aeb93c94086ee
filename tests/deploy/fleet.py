"""Three servers of one tiny model and a real proxy in front of them, HAProxy or nginx, configured as deploy/ has it."""

import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))
import served  # noqa: E402
from served import tiny_model  # noqa: E402

PROJECT = pathlib.Path(__file__).resolve().parents[2]
REPLICAS = ("replica1", "replica2", "replica3")
ADAPTERS = tuple(f"adapter{i}" for i in range(6))
UNTOUCHED = tuple(f"untouched{i}" for i in range(6))  # which one test alone asks for


def proxies():
    """Where Debian's packages of them were unpacked; nothing where they are installed."""
    return pathlib.Path(os.environ.get("CHORAL_PROXIES", "/"))


def need_program(name):
    """Its path; exit 77 without."""
    unpacked = proxies() / "usr" / "sbin" / name
    found = str(unpacked) if unpacked.exists() else shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if not found or subprocess.run([found, "-v"], capture_output=True, timeout=served.LONG).returncode != 0:
        print(f"skipped: no {name} here; ./dev test fetches it where Debian's packages can be reached")
        sys.exit(77)
    return found


class Files:
    """A model, adapters and a certificate of the edge, made once for all tests of a file."""

    def __init__(self):
        self.temp = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temp.name)
        self.model = tiny_model.write_model(self.folder / "tiny", context=4096)
        for seed, name in enumerate(ADAPTERS + UNTOUCHED):
            tiny_model.write_adapter(self.folder / "adapters" / name, seed)
        self.certificate, key = self.folder / "cert.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-days", "2", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", self.certificate,
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                       check=True, capture_output=True, timeout=served.LONG)
        self.key = key
        self.both = self.folder / "edge.pem"
        self.both.write_text(self.certificate.read_text() + key.read_text())

    def serve(self, *args):
        return served.Server(self.model, "--adapter-root", self.folder / "adapters", *args)


class Fleet:
    """What a proxy's test needs of the replicas; the proxy itself is started by the subclass."""

    def __init__(self, files, *args, replicas=None):
        """`replicas` in place of three servers with the arguments."""
        self.files, self.process, self.replicas = files, None, dict(replicas or {})
        self.context = ssl.create_default_context(cafile=str(files.certificate))
        descriptor, log = tempfile.mkstemp(dir=files.folder, suffix=".log")
        os.close(descriptor)
        self.log = pathlib.Path(log)
        try:
            for name in REPLICAS:
                if name not in self.replicas:
                    self.replicas[name] = files.serve(*args)
            self.start_proxy()
        except BaseException:
            self.stop()
            raise

    def stop(self):
        if self.process:
            self.process.terminate()  # and it ends its own
            self.process.wait(served.LONG)
        for server in self.replicas.values():
            if isinstance(server, served.Server) and not server.process.stderr.closed:
                server.stop(signal.SIGKILL)

    def addresses(self):
        return {f"REPLICA_{i}": f"127.0.0.1:{server.port}" for i, server in enumerate(self.replicas.values(), 1)}

    def wait_for(self, what, why):
        end = time.monotonic() + served.LONG
        while not what():
            if time.monotonic() > end:
                raise AssertionError(f"{why}; the proxy said: {self.log.read_text()}")
            time.sleep(0.02)

    # --- what clients do ---

    def connection(self, source="127.0.0.1"):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=served.LONG, context=self.context, source_address=(source, 0))

    def call(self, method, path, body=None, headers=None, source="127.0.0.1"):
        """The status, the headers and the body's bytes."""
        with contextlib.closing(self.connection(source)) as connection:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body)
            connection.request(method, path, body=data, headers={**served.JSON, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def complete(self, adapter="base", **body):
        """Which replica answered, and what."""
        status, headers, answer = self.call("POST", "/v1/completions", {"model": adapter, "prompt": "x", "max_tokens": 3, "temperature": 0, **body})
        if status != 200:
            raise AssertionError(f"{status} {answer}")
        return headers["X-Choral-Replica"], json.loads(answer)["choices"][0]["text"]

    def stream(self, adapter, max_tokens):
        """A connection and its answer, which has begun."""
        connection = self.connection()
        connection.request("POST", "/v1/completions", json.dumps({"model": adapter, "prompt": "x", "max_tokens": max_tokens, "stream": True,
                                                                  "ignore_eos": True}), served.JSON)
        answer = connection.getresponse()
        if answer.status != 200 or not answer.readline().startswith(b"data: {"):
            raise AssertionError(f"{answer.status} {answer.read()}")
        return connection, answer

    def paced_stream(self):
        """The events of replicas that are Slow."""
        with contextlib.closing(self.connection()) as connection:
            connection.request("POST", "/v1/completions", json.dumps({"model": "x", "stream": True}), served.JSON)
            answer, events = connection.getresponse(), []
            for _ in Slow.EVENTS:
                events.append(answer.readline())
                Slow.has_the_last.release()
            return events

    # --- what replicas say of themselves, asked without the proxy ---

    def figure(self, replica, name, **labels):
        """The sum over all series of that name with these labels."""
        text = self.replicas[replica].call("GET", "/metrics")[2]
        series = re.findall(rf"^{re.escape(name)}(?:\{{(.*)\}})? (\S+)$", text, re.M)
        return sum(float(value) for has, value in series if all(f'{label}="{of}"' in has for label, of in labels.items()))

    def holders(self, adapter):
        """The replicas that have it in memory."""
        return [name for name, server in self.replicas.items() if re.search(rf'running_lora_adapters="(\w+,)*{adapter}[,"]', server.call("GET", "/metrics")[2])]

    def running(self, replica):
        return self.figure(replica, "vllm:num_requests_running")

    def kill(self, replica):
        self.replicas[replica].process.send_signal(signal.SIGKILL)
        self.replicas[replica].process.wait(served.LONG)


class Silent:
    """In a replica's place: it is ready, and leaves whoever asks for more without a word."""

    def __init__(self):
        self.asked = []
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_POST(self):
                stub.asked.append(self.path)
                self.rfile.read(int(self.headers["Content-Length"]))
                self.close_connection = True
                stub.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # of checks that are cut short
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request):
        pass

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Slow(Silent):
    """Likewise, and tells each event of its stream when the client has said that it has the one before."""

    EVENTS = [b"data: 1\n", b"data: 2\n", b"data: 3\n"]
    has_the_last = threading.Semaphore(0)

    def answer(self, request):
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        for event in self.EVENTS:
            request.wfile.write(event)
            request.wfile.flush()
            self.has_the_last.acquire(timeout=served.LONG)


class Load:
    """Clients that ask one after the other, streamed and whole by turns, until they are told to end."""

    def __init__(self, fleet, clients=6, padding=0):
        """`padding`: blanks in each body."""
        self.fleet, self.padding, self.done, self.answers, self.faults = fleet, padding, threading.Event(), [], []
        self.threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def _ask(self, number):
        turn = number
        while not self.done.is_set():
            turn += 1
            adapter, is_stream = ADAPTERS[turn % len(ADAPTERS)], turn % 2 == 0
            body = json.dumps({"model": adapter, "prompt": "x", "max_tokens": 40, "ignore_eos": True, "stream": is_stream})
            try:
                status, headers, text = self.fleet.call("POST", "/v1/completions", (body[:-1] + " " * self.padding + "}").encode())
            except (OSError, http.client.HTTPException) as error:
                self.faults.append(repr(error))
                continue
            whole = text.rstrip().endswith(b"data: [DONE]") if is_stream else b'"finish_reason":"length"' in text.replace(b": ", b":")
            if status == 200 and whole:
                self.answers.append(headers["X-Choral-Replica"])
            else:
                self.faults.append((status, text[-300:]))

    def end(self):
        self.done.set()
        for thread in self.threads:
            thread.join(served.LONG)


def listening_socket():
    """A free port that stays ours: the proxy inherits the socket."""
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen(256)
    made.set_inheritable(True)
    return made
