"""A server of the program under test, on a free port, and a client that reads plain answers and streams."""

import contextlib
import http.client
import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import tiny_model  # noqa: E402

CHORAL = ""  # set by the test's main
JSON = {"Content-Type": "application/json"}  # the header that bodies need
LONG = 120  # seconds that nothing here takes on any machine


def need(package):
    """The package, from this Python or from the one that CHORAL_CLIENTS_PYTHON names (`./dev test` makes it); exit 77 without."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        other = os.environ.pop("CHORAL_CLIENTS_PYTHON", None)
        if other:
            os.execv(other, [other, *sys.argv])
        print(f"skipped: no Python package '{package}' here; ./dev test installs it where the package index can be reached")
        sys.exit(77)


def need_xgrammar():
    """Exit 77 without the library of grammars; its folder otherwise, where the server looks for it."""
    if not (folder := os.environ.get("CHORAL_XGRAMMAR")):
        print("skipped: CHORAL_XGRAMMAR names no folder with xgrammar; ./dev test installs it where the package index can be reached")
        sys.exit(77)
    return folder


class Server:
    def __init__(self, *args, command=None, cwd=None, env=None):
        """`command` in place of the program with `args`; `env` stands above this process' own."""
        command = command or [CHORAL, "serve", *map(str, args), "--port", "0", "--threads", "2"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace", cwd=cwd,
                                        env={**os.environ, **(env or {})})
        self.said = []
        self.port = 0
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(LONG) or not self.port:
            self.process.kill()
            raise AssertionError("the server did not start: " + "".join(self.said))

    def _read(self):
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"serving on https?://[^ :]+:(\d+)", line):
                self.port = int(found[1])
                self.ready.set()
        self.ready.set()

    def stop(self, signal_number=15):
        """Gives the exit code."""
        self.process.send_signal(signal_number)
        code = self.process.wait(LONG)
        self.reader.join(LONG)
        self.process.stderr.close()
        return code

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)

    def call(self, method, path, body=None, headers=None):
        """The status, the headers and the body: JSON where it is that."""
        with contextlib.closing(self.connection()) as connection:
            data = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
            connection.request(method, path, body=data, headers={**JSON, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
            kind = answer.headers.get("Content-Type", "")
            return answer.status, answer.headers, json.loads(text) if kind.startswith("application/json") else text

    def post(self, path, **body):
        status, _, answer = self.call("POST", path, body)
        if status != 200:
            raise AssertionError(f"{path}: {status} {answer}")
        return answer

    def stream(self, path, **body):
        """The data of each event; the last one must be [DONE]."""
        with contextlib.closing(self.connection()) as connection:
            connection.request("POST", path, body=json.dumps({**body, "stream": True}), headers=JSON)
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status != 200:
                raise AssertionError(f"{path}: {answer.status} {text}")
            events = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
            if events[-1] != "[DONE]":
                raise AssertionError(f"the stream ends with {events[-1]}")
            return [json.loads(event) for event in events[:-1]]


class Files:
    """A tiny model and two adapters in a folder of their own."""

    def __init__(self, context=256):
        self.temp = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temp.name)
        self.model = tiny_model.write_model(self.folder / "tiny", context=context)
        self.root = self.folder / "adapters"
        tiny_model.write_adapter(self.root / "one", 1)
        tiny_model.write_adapter(self.root / "two", 2)

    def plain_model(self, name="plain"):
        """A model without a chat template, in a folder of that name."""
        folder = self.folder / name
        shutil.copytree(self.model, folder, dirs_exist_ok=True)
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config.pop("chat_template", None)
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder
