#!/usr/bin/env python3
"""Checks what a formatter cannot: file sizes, header comments, #pragma once, words and names that have no place here.

  check_style.py [ROOT]       exit 1 and one line for each fault; soft limits are only printed
  check_style.py --self-test  proves on a planted tree that faults are found
"""

import os
import pathlib
import re
import sys
import tempfile

HARD_LINES = 600
SOFT_LINES = {".cc": 400, ".h": 200}
CODE = {".h", ".cc", ".c", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt"}
CPP = {".h", ".cc", ".c", ".cu", ".cuh"}
PARTS = ("src", "include", "apps", "plugins", "examples", "python", "tests", "cmake", "docs")
SKIP = {"build", "data", "seeds", "__pycache__", "node_modules"}
VAGUE = {"util", "utils", "common", "helper", "helpers", "misc", "stuff"}
FIELD_NAMES = {"peft_helper", "peft_helper_test"}  # after a class that the field calls so
# Spelled in two halves so that this file passes its own check.
MARKS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
GUARD = re.compile(r"#ifndef CHORAL_\w+_H_?$")
PLACES = re.compile(r"(?<![\w.])/(home|work|Users)/\w")
STRINGS_AND_COMMENTS = re.compile(r'"(?:[^"\\]|\\.)*"|//.*')
DEBUG_FORMAT = re.compile(r"\{[^{}\"]*:[^{}\"]*\?\}")  # fmt 9 ends the process over bytes that are no UTF-8
BINDING = ("python", "src")  # where a Status becomes an exception
THROW = re.compile(r"\bthrow\b(?!\s+std::bad_alloc)")  # operator new has to

FOR = re.compile(r"\bfor \(([^;]*?[^:]) : \*")

# Calls that throw where the system refuses something, in what is shipped: each has a form that gives an error instead.
SHIPPED = ("src", "apps")
FILE_SYSTEM = re.compile(r"\b(?:fs|filesystem)::(\w+)\s*\(")
WITHOUT_ERROR_CODE = {  # arguments beside the error_code
    "temp_directory_path": 0, "current_path": 0, "rename": 2, "copy": 2, "copy_file": 2, "create_hard_link": 2, "create_symlink": 2,
    "create_directory_symlink": 2, "copy_symlink": 2, "equivalent": 2, "permissions": 2, "resize_file": 2,
    **dict.fromkeys("""absolute canonical weakly_canonical relative proximate create_directory create_directories exists file_size
                       hard_link_count is_block_file is_character_file is_directory is_empty is_fifo is_other is_regular_file
                       is_socket is_symlink last_write_time read_symlink remove remove_all space status symlink_status
                       directory_iterator recursive_directory_iterator directory_entry""".split(), 1),
}
ITERATOR = re.compile(r"\bdirectory_iterator\s+(\w+)\s*\(")
THROWING = (
    (re.compile(r"(?<!:):\s*(?:std::)?(?:fs|filesystem)::(?:recursive_)?directory_iterator\b"),
     "a range-for over a directory throws; use increment(error)"),
    (re.compile(r"(?:->|\.)(?:is_directory|is_regular_file|is_symlink|file_size|symlink_status|refresh)\(\)"),
     "a directory_entry's question without an error_code throws"),
    (re.compile(r"\bstd::j?thread\s*(?:\w+\s*)?[({]|\bthread\w*_\s*\(\s*\[|\bstd::async\b"),
     "a thread that cannot be had throws; use start_thread (base/thread.h)"),
    (re.compile(r"make_unique<ThreadPool>|\bThreadPool\s+\w+\s*[({](?!\s*1\s*[)}])"),
     "threads that cannot be had end the process; use ThreadPool::make"),
    (re.compile(r"\bfmt::print\b|\bstd::c(?:out|err|log)\b"),
     "a full or closed stream throws, or nobody notices; use say() (base/log.h) or print_out()"),
)
OWN_FORMS = {"src/base/thread.cc", "src/base/thread_pool.h"}  # what the others are told to use


def loops_over_unnamed(line):
    """Whether a range-for goes over what a call's pointer holds: a shared_ptr that nobody named is gone before the loop begins."""
    found = FOR.search(line)
    depth, end = 1, found.end() if found else len(line)
    while end < len(line) and depth > 0:
        depth += {"(": 1, ")": -1}.get(line[end], 0)
        end += 1
    return found is not None and line[found.end():end - 1].endswith(")")


def source_files(root):
    for part in PARTS:
        for folder, names, found in os.walk(root / part):
            names[:] = sorted(n for n in names if n not in SKIP)
            yield from (pathlib.Path(folder) / f for f in sorted(found))
    yield from (p for p in (root / "dev", root / ".ci/run", root / "CMakeLists.txt", *sorted(root.glob("*.md"))) if p.is_file())


def faults_of(path, relative):
    """(hard faults, soft remarks) of one file, each as 'file:line: text'."""
    hard, soft = [], []
    for piece in (*relative.parts[:-1], relative.stem):
        if piece not in FIELD_NAMES and VAGUE & set(re.split(r"[_\-.]", piece.lower())):
            hard.append(f"{relative}:1: '{piece}' says nothing; name the subject")
    if path.suffix not in CODE | {".md", ""}:
        return hard, soft
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        hard.append(f"{relative}:1: not UTF-8")
        return hard, soft
    for number, line in enumerate(lines, 1):
        if MARKS.search(line):
            hard.append(f"{relative}:{number}: unfinished work does not go in: do it, or say in the docs what is missing")
        if PLACES.search(line):
            hard.append(f"{relative}:{number}: a path of somebody's machine")
        if path.suffix in CPP and DEBUG_FORMAT.search(line):
            hard.append(f"{relative}:{number}: {{:?}} ends the process over bytes that are no UTF-8; use quoted()")
        if path.suffix in CPP and loops_over_unnamed(line):
            hard.append(f"{relative}:{number}: what a call returns dies before the loop over what it points to; give it a name")
        if path.suffix in CPP and relative.parts[:2] != BINDING and THROW.search(STRINGS_AND_COMMENTS.sub("", line)):
            hard.append(f"{relative}:{number}: no exceptions of our own; return a Status")
    if path.suffix in CPP:
        hard += throwing_calls(relative, lines)
    if path.suffix in CODE and len(lines) > HARD_LINES:
        hard.append(f"{relative}:1: {len(lines)} lines, {HARD_LINES} at most; split it by subject")
    soft_limit = SOFT_LINES[".cc"] if path.stem.endswith("_inl") else SOFT_LINES.get(path.suffix, HARD_LINES)
    if soft_limit < len(lines) <= HARD_LINES:
        soft.append(f"{relative}:1: {len(lines)} lines, {soft_limit} wanted")
    if path.suffix == ".h":
        if not lines or not lines[0].startswith(("//", "/*")):
            hard.append(f"{relative}:1: a header opens with a comment: what, why so, thread-safety")
        # X_inl.h is meant to be included once per CPU level; plugin.h is C and keeps to include guards.
        if "#pragma once" not in lines and not path.stem.endswith("_inl") and not any(GUARD.match(line) for line in lines):
            hard.append(f"{relative}:1: no #pragma once")
    return hard, soft


def arguments_of(text, begin):
    """How many arguments the call has whose parenthesis stands before `begin`."""
    depth, commas, empty = 0, 0, True
    for c in text[begin:]:
        if c == ")" and depth == 0:
            return 0 if empty else commas + 1
        depth += (c in "([{") - (c in ")]}")
        commas += c == "," and depth == 0
        empty = empty and c.isspace()
    return 0


def throwing_calls(relative, lines):
    """Hard faults of a shipped file: calls that throw what nobody there catches."""
    if relative.parts[0] not in SHIPPED or re.search(r"_(test|bench)$", relative.stem) or str(relative) in OWN_FORMS:
        return []
    text = "\n".join(STRINGS_AND_COMMENTS.sub('""', line) for line in lines)
    found = [(m.start(), why) for pattern, why in THROWING for m in pattern.finditer(text)]
    for call in FILE_SYSTEM.finditer(text):
        given = WITHOUT_ERROR_CODE.get(call[1])
        if given is not None and arguments_of(text, call.end()) <= given:
            found.append((call.start(), f"{call[1]} without an error_code throws"))
    for declared in ITERATOR.finditer(text):
        if arguments_of(text, declared.end()) <= 1:
            found.append((declared.start(), "a directory_iterator without an error_code throws"))
        if step := re.search(rf"\+\+{declared[1]}\b|\b{declared[1]}\+\+", text):
            found.append((step.start(), "++ of a directory_iterator throws; use increment(error)"))
    return [f"{relative}:{text.count(chr(10), 0, at) + 1}: {why}" for at, why in sorted(found)]


def check(root):
    hard, soft = [], []
    for path in source_files(root):
        more_hard, more_soft = faults_of(path, path.relative_to(root))
        hard += more_hard
        soft += more_soft
    return hard, soft


def self_test():
    head = "// What it is.\n#pragma once\n"
    good = {
        "src/base/good.h": head,
        "src/base/good.cc": "int x;\n" * HARD_LINES,
        "src/base/names.cc": "for (const auto& x : *names) f(*g());\nfor (int i : std::span(*p, 3)) {}\n",
        "src/base/speaks.cc": 'auto s = "never throw \\" it";  // nor throw here\n',
        "src/io/asks.cc": "bool b = fs::is_directory(p / q(1, 2),\n                          error);\nfs::path own(const fs::path& p);\n"
                          "for (fs::directory_iterator at(p, error), end; at != end; at.increment(error)) {}\n",
        "src/io/asks_test.cc": "std::thread t(f); fs::exists(p);\n",
        "src/io/holds.h": head + "std::thread thread_; std::vector<std::thread> all_; ThreadPool pool{1};\n",
        "tests/data/common/any.h": "",
        "docs/good.md": "throw it away\n",
    }
    bad = {
        "src/base/naked.h": "#pragma once\n",
        "src/base/twice.h": "// What it is.\n",
        "src/base/long.cc": "int x;\n" * (HARD_LINES + 1),
        "src/base/later.cc": "// TO" "DO: finish\n",
        "src/base/throws.cc": "  if (x) throw 1;\n",
        "src/base/loops.cc": "  for (const auto& [name, why] : *watcher_->faults()) say(name);\n",
        "src/io/throws_by_asking.cc": "bool b = fs::is_directory(p / q(1, 2));\n",
        "src/io/throws_by_moving.cc": "std::filesystem::rename(a, b);\n",
        "src/io/throws_by_opening.cc": "fs::directory_iterator at(p);\n",
        "src/io/throws_by_stepping.cc": "fs::directory_iterator at(p, error);\n++at;\n",
        "src/io/throws_by_looking.cc": "for (const auto& e : fs::directory_iterator(p, error)) {}\n",
        "src/io/throws_by_entry.cc": "if (entry->is_directory()) {}\n",
        "apps/throws_by_starting.cc": "thread_ = std::thread([this] { run(); });\n",
        "apps/throws_by_making.cc": "X::X() : thread_([this] { run(); }) {}\n",
        "apps/throws_by_pooling.cc": "ThreadPool pool(threads);\n",
        "apps/throws_by_printing.cc": 'fmt::print(stderr, "x");\n',
        "src/utils/string.h": head,
        "src/io/json_helper.cc": "",
        "docs/mine.md": "see /ho" "me/me/notes\n",
        "tests/check.py": "# FIX" "ME\n",
    }
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for file, text in (good | bad).items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text, encoding="utf-8")
        found = {fault.split(":")[0] for fault in check(root)[0]}
    if found != set(bad):
        print(f"self-test: missed {sorted(set(bad) - found)}, wrongly reported {sorted(found - set(bad))}")
    return 0 if found == set(bad) else 1


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    hard, soft = check(root)
    if soft:
        print("long, but allowed:", *soft, sep="\n  ")
    print("\n".join(hard) if hard else "style: nothing to complain about")
    return 1 if hard else 0


if __name__ == "__main__":
    sys.exit(main())
