"""The server of a replica: `choral serve` on a unix socket, a child that does not outlive the replica's process."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from choral.errors import InvalidArgumentError
from choral.server import Server

# prctl(PR_SET_PDEATHSIG, SIGKILL); a parent that is gone already sends no signal.
FOLLOW_PARENT = """import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])"""

# Flags that a replica sets itself, or that would give each replica something of its own that clients take for the fleet's.
REFUSED = {
    "--uds": "each replica has a socket of its own",
    "--host": "clients come through Ray Serve, whose http_options name its address",
    "--port": "clients come through Ray Serve, whose http_options name its port",
    "--ssl-certfile": "clients come through Ray Serve; its proxies, or what stands before them, have the certificate",
    "--state-dir": "its files would be one replica's, and the next request may go to another; adapters that are loaded over HTTP are kept by Ray",
    "--config": "its lines could say any of the others; give the flags",
}
OTHER_KEYS = {"--api-key": "CHORAL_API_KEY", "--api-key-file": "CHORAL_API_KEY_FILE"}


def check_arguments(arguments: Sequence[str]) -> None:
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag in REFUSED:
            raise InvalidArgumentError(f"arguments: {flag} is not for a fleet: {REFUSED[flag]}; leave it out")


class Child:
    """Ready when this returns. `key` is for the replica's own requests: an admin's, where the server asks for keys at all."""

    def __init__(self, model: str, arguments: Sequence[str], drain_s: int, on_line: Callable[[str], object]) -> None:
        check_arguments(arguments)
        self.key = value_of("--admin-api-key", arguments) or os.environ.get("CHORAL_ADMIN_API_KEY")
        if self.key is None and any(value_of(flag, arguments) or os.environ.get(variable) for flag, variable in OTHER_KEYS.items()):
            self.key = secrets.token_hex(16)
        self._folder = tempfile.TemporaryDirectory(prefix="choral-")
        self.socket_path = str(Path(self._folder.name) / "socket")
        own = ["--uds", self.socket_path, "--trusted-proxies", "unix", "--shutdown-timeout", str(drain_s)]
        self._server = Server(model, [*own, *arguments], environment={"CHORAL_ADMIN_API_KEY": self.key} if self.key else {}, on_line=on_line,
                              launcher=[sys.executable, "-ISc", FOLLOW_PARENT, str(os.getpid())])
        self.pid = self._server.pid

    def check(self) -> None:
        """Throws when it has ended."""
        if (code := self._server.exit_code) is not None:
            raise RuntimeError(f"choral serve ended with {code}; it said:\n{self._server.log}")

    def stop(self, timeout_s: float) -> None:
        """SIGTERM: answers in flight are finished, within its own limit."""
        self._server.stop(timeout_s)
        self._folder.cleanup()


def value_of(flag: str, arguments: Sequence[str]) -> str | None:
    for i, argument in enumerate(arguments):
        if argument == flag and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith(flag + "="):
            return argument[len(flag) + 1 :]
    return None
