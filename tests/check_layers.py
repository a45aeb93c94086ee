#!/usr/bin/env python3
"""Checks every #include and every choral_library(DEPS …) against the table of layers; part of the test suite.

A folder of src/ may include itself and folders with a smaller number: folders with the same number know nothing of each other.
What is not in libchoral (synthetic, fetch, tools, serve) is for tests and for each other. include/choral stands alone; plug-ins see nothing
but choral/plugin.h; apps include the public headers and the folders of src/ that read and answer, none that decides or computes.

  check_layers.py [ROOT]       exit 1 and one line for each violation
  check_layers.py --self-test  proves on a planted tree that violations are found
"""

import pathlib
import re
import sys
import tempfile

LAYERS = {
    "base": 0,
    "tensor": 1,
    "kernels": 2, "io": 2, "text": 2,
    "platform": 3,
    "quant": 4, "lora": 4, "cache": 4,
    "layers": 5, "synthetic": 5,
    "models": 6,
    "sched": 7,
    "engine": 8,
    "requests": 9, "fetch": 9, "mpi": 9,
    "c_api": 10, "serve": 10, "tools": 10,
}

# What stands outside the table. "choral" is include/choral: headers of plain values are known everywhere, the engine's from there.
PUBLIC_FROM = {"choral/status.h": "base", "choral/types.h": "base", "choral/plugin.h": "platform"}
PLUGIN_HEADERS = {"choral/plugin.h"}
OUTSIDE_LIBRARY = {"synthetic", "mpi", "fetch", "tools", "serve"}
# The program and the examples are built on these folders; what decides and computes is reached through them.
MAY_INCLUDE = {"apps": {"choral", "base", "io", "text", "quant", "lora", "engine", "requests", "serve", "tools"}, "examples": {"choral"}}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
LIBRARY = re.compile(r"choral_library\(\s*(\w+)([^)]*)\)")
SUFFIXES = {".h", ".cc", ".c", ".cu", ".cuh"}


def files(folder):
    if folder.is_dir():
        yield from (p for p in sorted(folder.rglob("*")) if p.suffix in SUFFIXES)


def includes(path):
    text = path.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start(2)) + 1, match.group(1), match.group(2)


def fault_in_src(layer, path, bracket, name):
    first = name.split("/")[0]
    if first == "choral":
        lowest = PUBLIC_FROM.get(name, "engine")
        return f"{layer} is below {lowest}, which owns this public header" if LAYERS[layer] < LAYERS[lowest] else None
    if bracket == "<":
        return "our own headers are included with quotes" if first in LAYERS and "/" in name else None
    if "/" not in name:
        return f'write the path from src/: "{layer}/{name}"'
    if first == "support" and path.stem.endswith(("_test", "_bench")):
        return None
    if first not in LAYERS:
        return f"no folder of src/ is named '{first}' (headers of libraries are included with <>)"
    if first != layer and LAYERS[first] >= LAYERS[layer]:
        return f"{layer} [{LAYERS[layer]}] may not include {first} [{LAYERS[first]}]"
    if first in OUTSIDE_LIBRARY and layer not in OUTSIDE_LIBRARY and not path.stem.endswith("_test"):
        return f"{first} is not in the library: only tests of {layer} may include it"
    return None


def fault_outside(part, path, bracket, name, root):
    first = name.split("/")[0]
    beside = (path.parent / name).is_file() or any((parent / name).is_file() for parent in path.parents
                                                    if parent.is_relative_to(root / part) and parent != root)
    if part == "include":
        if bracket == "<" and first != "choral":
            return None if first not in LAYERS or "/" not in name else "a public header includes nothing of src/"
        if name.startswith("choral/") and (root / "include" / name).is_file():
            return None
        return "a public header includes only the standard library and include/choral"
    if part == "plugins":
        if first == "choral" and name not in PLUGIN_HEADERS:
            return "a plug-in sees only choral/plugin.h"
        if first in LAYERS and "/" in name and (root / "src" / name).is_file():
            return "a plug-in includes nothing of src/"
        return None
    if part == "apps" and first == "support" and path.stem.endswith("_test"):
        return None
    if bracket == '"' and not beside and first not in MAY_INCLUDE[part]:
        return f"{part}/ may include its own files and {', '.join(sorted(MAY_INCLUDE[part]))}"
    return None


def check(root):
    """All violations, as 'file:line: include: reason'."""
    faults = []

    def report(path, line, what, reason):
        if reason:
            faults.append(f"{path.relative_to(root)}:{line}: {what}: {reason}")

    src = root / "src"
    for folder in sorted(p for p in src.iterdir() if p.is_dir()):
        if folder.name not in LAYERS:
            faults.append(f"src/{folder.name}: this folder has no place in the table of layers")
            continue
        for path in files(folder):
            for line, bracket, name in includes(path):
                report(path, line, name, fault_in_src(folder.name, path, bracket, name))
        lists = folder / "CMakeLists.txt"
        for match in LIBRARY.finditer(lists.read_text(encoding="utf-8") if lists.is_file() else ""):
            arguments = match.group(2)
            deps = re.search(r"\bDEPS\s+(.*?)(?=\b(?:LIBS|TEST_LIBS)\b|$)", arguments, re.DOTALL)
            for dep in deps.group(1).split() if deps else []:
                if LAYERS.get(dep, 99) >= LAYERS[folder.name] or dep in OUTSIDE_LIBRARY and folder.name not in OUTSIDE_LIBRARY:
                    report(lists, 1, f"DEPS {dep}", f"{folder.name} may not depend on {dep}")
    for part in ("include", "apps", "examples", "plugins"):
        for path in files(root / part):
            for line, bracket, name in includes(path):
                report(path, line, name, fault_outside(part, path, bracket, name, root))
    return faults


def self_test():
    planted = {
        "src/base/good.h": '#include <vector>\n#include "choral/status.h"\n',
        "src/kernels/good.cc": '#include "kernels/good.h"\n#include "tensor/view.h"\n#include "base/good.h"\n',
        "src/kernels/good_test.cc": '#include "support/temp_dir.h"\n',
        "src/engine/good.cc": '#include "choral/llm.h"\n#include "sched/plan.h"\n',
        "include/choral/llm.h": '#include <string>\n#include "choral/types.h"\n',
        "include/choral/types.h": "#include <cstdint>\n",
        "include/choral/plugin.h": "#include <stdint.h>\n",
        "plugins/device/good.c": '#include "choral/plugin.h"\n#include "device.h"\n',
        "examples/good.cc": "#include <choral/llm.h>\n",
        "apps/good.cc": '#include "tools/good.h"\n#include "engine/deeper/good.h"\n#include "choral/llm.h"\n',
        "src/tools/bench/good.h": '#include "engine/good.h"\n#include "synthetic/good.h"\n',
        "src/engine/good_test.cc": '#include "synthetic/good.h"\n',
        "apps/good_test.cc": '#include "support/temp_dir.h"\n',
    }
    bad = {
        "src/base/up.h": '#include "tensor/view.h"\n',
        "src/io/sideways.cc": '#include "text/tokenizer.h"\n',
        "src/lora/sideways.h": '#  include "quant/scheme.h"\n',
        "src/sched/up_test.cc": '#include "engine/core.h"\n',
        "src/io/public.h": '#include "choral/llm.h"\n',
        "src/quant/bare.cc": '#include "scheme.h"\n',
        "src/quant/angle.cc": "#include <base/status.h>\n",
        "src/models/support.cc": '#include "support/temp_dir.h"\n',
        "apps/computes.cc": '#include "kernels/good.h"\n',
        "apps/support.cc": '#include "support/temp_dir.h"\n',
        "src/cache/CMakeLists.txt": "choral_library(cache DEPS base sched LIBS fmt::fmt)\n",
        "src/models/CMakeLists.txt": "choral_library(models DEPS base synthetic)\n",
        "src/engine/made_up.cc": '#include "synthetic/good.h"\n',
        "src/engine/up_test.cc": '#include "tools/good.h"\n',
        "src/odd/anything.h": "#pragma once\n",
        "include/choral/private.h": '#include "base/status.h"\n',
        "plugins/device/inside.c": '#include "choral/llm.h"\n',
        "plugins/device/deeper.c": '#include "base/good.h"\n',
        "examples/inside.cc": '#include "engine/good.h"\n',
    }
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for file, text in (planted | bad).items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text, encoding="utf-8")
        faults = check(root)
    wanted = {"src/odd" if file.startswith("src/odd/") else file for file in bad}
    found = {fault.split(":")[0] for fault in faults}
    for file in sorted(wanted - found):
        print(f"self-test: the violation in {file} was not found")
    for fault in faults:
        if fault.split(":")[0] not in wanted:
            print(f"self-test: wrongly reported: {fault}")
    return 0 if found == wanted else 1


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    faults = check(root)
    print("\n".join(faults) if faults else "layers: every include keeps the order")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
