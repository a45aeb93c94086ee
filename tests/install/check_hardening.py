#!/usr/bin/env python3
"""check_hardening.py READELF OBJDUMP PROGRAM|LIBRARY…: what cmake/ChoralOptions.cmake asks for is in the file that users run."""

import re
import subprocess
import sys


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout


def missing(readelf, objdump, path):
    head, sections = run(readelf, "-Whl", path), run(readelf, "-Wd", path)
    imports = run(readelf, "-Ws", "--dyn-syms", path)
    is_library = ".so" in path
    yield "a position that changes with each start (PIE)", re.search(r"Type:\s+DYN", head) and (is_library or "PIE" in sections)
    yield "tables of functions that are read-only from the start (RELRO, BIND_NOW)", "GNU_RELRO" in head and "NOW" in sections
    yield "a stack that is not executable", re.search(r"GNU_STACK(\s+0x[0-9a-f]+){5}\s+RW\s", head)
    yield "canaries (-fstack-protector-strong)", "__stack_chk_fail" in imports
    yield "checked copies (_FORTIFY_SOURCE)", re.search(r"__(memcpy|memmove|memset|read|snprintf|vsnprintf|poll)_chk", imports)
    if "X86-64" in head and not is_library:
        body = run(objdump, "-d", "--disassemble=main", "--no-show-raw-insn", path)
        yield "marked targets of jumps (CET)", "endbr64" in body


def main():
    readelf, objdump, *paths = sys.argv[1:]
    failed = [f"{path}: {what} is missing" for path in paths for what, there in missing(readelf, objdump, path) if not there]
    print("\n".join(failed) or f"{len(paths)} files are hardened")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
