"""The `choral` command that came with this package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from choral.errors import NotFoundError


def program() -> Path:
    """Its path."""
    path = Path(__file__).parent / "bin" / "choral"
    if not path.is_file():
        raise NotFoundError(f"{path} is not there; install the wheel again")
    return path


def main() -> None:
    """`choral …` and `python -m choral …`: the program takes this process over. `demo` is the package's own."""
    if sys.argv[1:2] == ["demo"]:
        from choral.demo import demo

        sys.exit(demo(sys.argv[2:]))
    path = str(program())
    os.execv(path, [path, *sys.argv[1:]])
