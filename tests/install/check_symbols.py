#!/usr/bin/env python3
"""check_symbols.py NM LIBRARY: the shared library defines symbols of namespace choral only, and few of them.

A symbol too many is a promise nobody meant to give, and can clash with the program's own copy of a library.
"""

import subprocess
import sys

MOST = 400  # the public surface is small


def main():
    nm, library = sys.argv[1:]
    listing = subprocess.run([nm, "-DC", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    names = [line.split(maxsplit=2)[2] for line in listing.splitlines() if len(line.split(maxsplit=2)) == 3]
    ours = ("choral::", "typeinfo for choral::", "typeinfo name for choral::", "vtable for choral::", "choral_")
    strange = [name for name in names if not name.startswith(ours)]
    for name in strange:
        print(f"exported, but not ours: {name}")
    print(f"{len(names)} symbols")
    return 1 if strange or not 0 < len(names) <= MOST else 0


if __name__ == "__main__":
    sys.exit(main())
