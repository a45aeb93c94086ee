"""A frontend of Dynamo's and workers of ours, as processes on this machine that find each other by files in a folder."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import time

MODEL = "tiny"
TRIES, PAUSE_S = 3000, 0.1  # how often something is looked for that comes in time on any machine


class Process:
    def __init__(self, fleet, name, *command):
        self.log = fleet.folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", *command], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, env=fleet.environment)

    def told(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", self.log.read_text(errors="replace"))

    def wait_for(self, look):
        """What `look` gives as soon as that is something."""
        for _ in range(TRIES):
            if found := look():
                return found
            if self.process.poll() is not None:
                break
            time.sleep(PAUSE_S)
        raise AssertionError(f"{self.process.args} gave up, or was not ready:\n{self.told()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Worker(Process):
    def __init__(self, fleet, name, *flags):
        super().__init__(fleet, name, "choral.dynamo", "--model", fleet.model, "--served-model-name", MODEL, "--threads", "1", *flags)

    def id(self):
        return int(self.wait_for(lambda: re.search(r"are served at \S+ by worker (\d+)", self.told()))[1])


class Fleet:
    """In a folder of its own. `workers` are up and told to the frontend when it is entered."""

    def __init__(self, folder, model, adapter_root, workers=2, flags=()):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.model = str(model)
        self.flags = ["--adapter-root", str(adapter_root), *flags]
        self.adapter_root = pathlib.Path(adapter_root)
        self.count = workers
        here = {"DYN_TCP_RPC_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_EVENT_PLANE_HOST"}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DYN_")},
            **{name: "127.0.0.1" for name in here},
            "DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": str(self.folder / "told"), "DYN_REQUEST_PLANE": "tcp", "DYN_EVENT_PLANE": "zmq",
            "DYN_SELF_HOST_METADATA": "0", "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.2",
            "HOME": str(self.folder), "HF_HUB_OFFLINE": "1", "NO_COLOR": "1",
        }  # fmt: skip
        self.workers = {}
        self.up = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.push(self.up)
            self.frontend = self.up.enter_context(Process(self, "frontend", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", "0",
                                                          "--migration-limit", "20"))
            self.port = self.frontend.wait_for(lambda: listening_port(self.frontend.process.pid))
            for worker in [self.begin_worker() for _ in range(self.count)]:
                self.workers[worker.id()] = worker
            names = {MODEL, *(folder.name for folder in self.adapter_root.iterdir())}
            self.frontend.wait_for(lambda: set(self.names()) == names)
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.up.close()

    def begin_worker(self):
        number = len(list(self.folder.glob("worker-*.log")))
        return self.up.enter_context(Worker(self, f"worker-{number}", *self.flags))

    def add_worker(self):
        """One that the frontend knows."""
        worker = self.begin_worker()
        self.workers[worker.id()] = worker
        return worker

    def names(self):
        return [model["id"] for model in self.ask("GET", "/v1/models")["data"]]

    def ask(self, method, path, body=None, status=200):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=TRIES * PAUSE_S)) as connection:
            connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        if response.status != status:
            raise AssertionError(f"{method} {path} {body}: {response.status} {text}")
        return json.loads(text)

    def post(self, path, body, status=200):
        return self.ask("POST", f"/v1/{path}", body, status)

    def stream(self, path, body, look=None):
        """Its chunks. `look` is called with each as it comes."""
        chunks = []
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=TRIES * PAUSE_S)) as connection:
            body = {**body, "stream": True, "nvext": {"extra_fields": ["worker_id"]}}
            connection.request("POST", f"/v1/{path}", json.dumps(body), {"Content-Type": "application/json"})
            for line in connection.getresponse():
                if line.startswith(b"data: {"):
                    chunks.append(json.loads(line[6:]))
                    if look:
                        look(chunks)
        return chunks


def text_of(choices):
    """Of one choice, whole or in pieces. Bytes that are no character are left out: where they are cut differs."""
    texts = [one.get("text") or (one.get("delta") or one.get("message") or {}).get("content") or "" for one in choices]
    return "".join(texts).replace("\ufffd", "")


def listening_port(pid):
    """The first TCP port that a process listens on; None as long as it does not."""
    with contextlib.suppress(OSError):
        sockets = {os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                return int(fields[1].split(":")[1], 16)
    return None
