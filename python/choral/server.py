"""A server beside this process, for tests and notebooks.

>>> with Server("SmolLM2-135M-Instruct.gguf", adapters={"pirate": "adapters/pirate"}) as server:
...     client = OpenAI(base_url=server.base_url, api_key="none")
"""

from __future__ import annotations

import collections
import os
import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from choral.errors import DeadlineExceededError, UnavailableError
from choral.program import program


class Server:
    """`choral serve` on a free port, ready when this returns and stopped with it. `arguments` are flags as the command line has
    them, `environment` is over this process' own. `launcher` is a command that starts it, as ["numactl", "--cpunodebind=0"] would;
    `on_line` gets each line that it says."""

    def __init__(
        self,
        model: str | os.PathLike[str],
        arguments: Sequence[str] = (),
        *,
        adapters: Mapping[str, str | os.PathLike[str]] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        timeout_s: float = 600,
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (),
        on_line: Callable[[str], object] | None = None,
    ) -> None:
        loras = [f"{name}={os.fspath(path)}" for name, path in (adapters or {}).items()]
        command = [*launcher, str(program()), "serve", os.fspath(model), "--host", host, "--port", str(port)]
        command += [part for lora in loras for part in ("--lora", lora)] + list(arguments)
        self._said: collections.deque[str] = collections.deque(maxlen=100)
        self._ready = threading.Event()
        self._on_line = on_line
        self.port = 0
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, errors="replace",
                                         env={**os.environ, **(environment or {})})
        self._reader = threading.Thread(target=self._read, name="choral serve", daemon=True)
        self._reader.start()
        if not self._ready.wait(timeout_s):
            self.stop()
            raise DeadlineExceededError(f"the server was not ready within {timeout_s:g} s; it said:\n{self.log}")
        if self.port == 0:
            self.stop()
            raise UnavailableError(f"the server did not start:\n{self.log}")
        self.url = f"http://{host}:{self.port}"
        self.base_url = self.url + "/v1"  # what OpenAI's client wants

    @property
    def log(self) -> str:
        """The last lines that it said."""
        return "".join(self._said)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; below 0: the signal that ended it."""
        return self._process.poll()

    def stop(self, timeout_s: float = 60) -> None:
        """Ends it: answers in flight are finished, within its own limit. A second call does nothing."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            if self._on_line is not None:
                self._on_line(line.rstrip("\n"))
            if found := re.search(r"serving on https?://\S+:(\d+)", line):
                self.port = int(found[1])
                self._ready.set()
        self._ready.set()
