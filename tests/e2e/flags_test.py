#!/usr/bin/env python3
"""docs/cli.md's tables of flags are what the program says of itself: flags_test.py CHORAL [--write].

Between the comments `<!-- flags -->` and `<!-- end of flags -->` stands what --help of each command prints, made into tables; flags that
several commands share stand once. --write puts them there."""

import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "cli.md"
PLACE = re.compile(r"(?<=<!-- flags -->\n).*?(?=<!-- end of flags -->)", re.S)
COLUMN = 42  # where descriptions begin


def help_of(program, *command):
    return subprocess.run([program, *command, "--help"], check=True, capture_output=True, text=True, timeout=60).stdout


def names_under(text, title):
    """The first words under a title of --help."""
    section = re.search(rf"^{title}:\n(.*?)(?:\n\n|\Z)", text, re.M | re.S)
    return re.findall(r"^  (\w[\w-]*)", section[1], re.M) if section else []


def commands_of(program, *outer):
    for name in names_under(help_of(program, *outer), "Subcommands"):
        if name in ("help", "version"):
            continue
        yield (*outer, name)
        yield from commands_of(program, *outer, name)


def flags_of(program, command):
    """(group, flag, description) as they stand in --help."""
    group, flags = None, []
    for line in help_of(program, *command).splitlines():
        if title := re.match(r"(\w[\w ]*):$", line):
            group = title[1]
        elif line.startswith("  -"):
            name, _, text = line.strip().partition("  ")
            flags.append([group, name, text.strip()])
        elif line.startswith(" " * COLUMN) and flags and not flags[-1][2]:
            flags[-1][2] = line.strip()
    return [tuple(flag) for flag in flags if "--help" not in flag[1]]


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def flag_cell(name):
    names, _, kind = name.partition(" ")
    return ", ".join(f"`{n}`" for n in names.split(",")) + (f" `{kind}`" if kind else "").replace("|", "\\|")


def tables(program):
    by_flag = {}
    for command in commands_of(program):
        for flag in flags_of(program, command):
            by_flag.setdefault(flag, []).append(" ".join(command))
    by_place = {}
    for (group, name, text), commands in by_flag.items():
        by_place.setdefault((group, tuple(commands)), []).append((name, text))
    out = []
    for (group, commands), flags in sorted(by_place.items(), key=lambda item: (len(item[0][1]) > 1, item[0][0] != "Options")):
        named = ", ".join(f"`{command}`" for command in commands)
        out += [f"**{named}**" + (f": {group.lower()}" if group != "Options" else ""), "", "| flag | |", "|---|---|"]
        out += [f"| {flag_cell(name)} | {cell(text)} |" for name, text in flags] + [""]
    return "\n".join(out) + "\n"


def main():
    page, made = PAGE.read_text(encoding="utf-8"), tables(sys.argv[1])
    if "--write" in sys.argv[2:]:
        PAGE.write_text(PLACE.sub(lambda _: "\n" + made, page), encoding="utf-8")
        return 0
    found = PLACE.search(page)
    if found and found[0] == "\n" + made:
        return 0
    missing = [line for line in made.splitlines() if line not in page]
    print("docs/cli.md has other tables of flags than the program; this writes them:",
          f"  python3 tests/e2e/flags_test.py {sys.argv[1]} --write", "First difference:", *missing[:3], sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
