#!/usr/bin/env python3
"""Checks that words speak of things that exist: in documents relative links and `paths/like/this` between backticks, in comments of the
sources the names of files.

  check_docs.py [ROOT]       exit 1 and one line for each fault
  check_docs.py --self-test  proves on a planted tree that faults are found
"""

import pathlib
import re
import sys
import tempfile

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"`([^`\s]+)`")
PATH = re.compile(r"(?:src|include|apps|plugins|examples|tests|cmake|docs|\.ci)/[\w./{},-]*$")
COMMENT = re.compile(r"(?://|^\s*#(?!\s*\w+\s*[<\"]))(.*)")
FILE = re.compile(r"(?<![\w./*…<-])[A-Za-z][\w/-]*\.(?:h|cc|py|md)\b")
SOURCES = ("src", "include", "apps", "plugins", "examples", "tests", "cmake")


def expand(path):
    """a/{b,c}.d -> a/b.d, a/c.d"""
    braces = re.search(r"\{([^}]*)\}", path)
    if not braces:
        return [path]
    return [p for part in braces.group(1).split(",") for p in expand(path[: braces.start()] + part + path[braces.end() :])]


def documents(root):
    yield from sorted(root.glob("*.md"))
    yield from sorted((root / "docs").rglob("*.md"))


def check_comments(root):
    files = [p.relative_to(root).as_posix() for folder in SOURCES for p in (root / folder).rglob("*") if p.is_file()]
    files += [p.relative_to(root).as_posix() for p in documents(root)]
    ends = {"/".join(f.split("/")[-n:]) for f in files for n in range(1, f.count("/") + 2)}
    for file in files:
        if not file.endswith((".h", ".cc", ".c", "CMakeLists.txt", ".cmake")):
            continue
        for number, line in enumerate((root / file).read_text(encoding="utf-8").splitlines(), 1):
            comment = COMMENT.search(line)
            for name in FILE.findall(comment.group(1)) if comment else []:
                if name not in ends and not name.startswith("hwy/") and not re.search(r"[A-Z]{3,}", name):
                    yield f"{file}:{number}: there is no {name}"


def check(root):
    faults = list(check_comments(root))
    for document in documents(root):
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
            place = f"{document.relative_to(root)}:{number}"
            for link in LINK.findall(line):
                if "://" not in link and not (document.parent / link).exists():
                    faults.append(f"{place}: the link leads nowhere: {link}")
            for code in CODE.findall(line):
                if not PATH.match(code) or re.search(r"[A-Z]{3,}", code):  # src/kernels/NAME.h stands for any
                    continue
                for path in expand(code):
                    if not (root / path).exists():
                        faults.append(f"{place}: there is no {path}")
    return faults


def self_test():
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "src/base").mkdir(parents=True)
        (root / "src/base/a.h").write_text("")
        (root / "src/base/e.h").write_text("// base/a.h, a.h, *_test.cc\n// as in gone.h\n")
        (root / "docs").mkdir()
        (root / "docs/good.md").write_text("[up](../README.md) [web](https://x.y/z) `src/base/a.h` `src/NAME.h` `src/…` `src/base/a.{h}`\n")
        (root / "README.md").write_text("[gone](docs/gone.md)\n`src/base/b.h`\n`src/base/{a,c}.h`\n")
        found = [fault.split(": ")[0] for fault in check(root)]
    wanted = ["src/base/e.h:2", "README.md:1", "README.md:2", "README.md:3"]
    if found != wanted:
        print(f"self-test: found {found}, planted {wanted}")
    return 0 if found == wanted else 1


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    faults = check(root)
    print("\n".join(faults) if faults else "docs: every link and path exists")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
