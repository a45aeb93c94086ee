#!/usr/bin/env python3
"""packaging/Containerfile and Containerfile.cuda, read and not run: no engine of containers is asked for. containerfile_test.py CHORAL [unittest arguments]"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
CHORAL = pathlib.Path(sys.argv[1]).resolve()
INSTRUCTIONS = {"FROM", "COPY", "WORKDIR", "RUN", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT"}


def stages(file="Containerfile"):
    """Of each stage its name, or its number, and its instructions with their arguments."""
    text = (PROJECT / "packaging" / file).read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    out = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            named = re.fullmatch(r"(\S+)(?: AS (\w+))?", arguments)
            out.append((named[2] or str(len(out)), []))
        out[-1][1].append((instruction, arguments.strip()))
    return out


def query(field, package):
    done = subprocess.run(["dpkg-query", "-W", "-f", field, package], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def installed_with(packages):
    """They and what they depend on, by what is installed here, and what every Debian has."""
    seen, todo = set(), list(packages)
    while todo:
        package = todo.pop()
        if package in seen:
            continue
        seen.add(package)
        todo += [re.match(r"[\w.+-]+", choice.strip())[0] for choice in query("${Depends}, ${Pre-Depends}", package).split(",") if choice.strip()]
    return seen


class ContainerfileTest(unittest.TestCase):
    stages = stages()
    last = stages[-1][1]

    def of(self, instruction):
        return [arguments for name, arguments in self.last if name == instruction]

    def test_they_are_written_of_known_instructions(self):
        for file, bases in ("Containerfile", {"debian:bookworm-slim"}), ("Containerfile.cuda", {"debian:bookworm-slim", "choral"}):
            names = []
            for name, instructions in stages(file):
                for instruction, arguments in instructions:
                    self.assertIn(instruction, INSTRUCTIONS)
                    if source := re.match(r"--from=(\S+) /\S+ /\S+$", arguments) if instruction == "COPY" and "--from" in arguments else None:
                        self.assertIn(source[1], names, "a stage before")
                names.append(name)
            self.assertEqual({arguments.split()[0] for _, instructions in stages(file) for name, arguments in instructions if name == "FROM"}, bases)

    def test_the_plugin_lies_where_the_program_looks(self):
        (_, made), (_, last) = stages("Containerfile.cuda")
        self.assertTrue(any("./dev build cuda " in arguments and "cmake --install build/cuda --prefix /install" in arguments for _, arguments in made))
        program, = [arguments.split()[-1] for arguments in self.of("COPY") if "--from=build" in arguments and "/bin/" in arguments]
        prefix = str(pathlib.PurePath(program).parent.parent)
        self.assertIn(("COPY", f"--from=plugin /install/lib/choral/plugins {prefix}/lib/choral/plugins"), last)
        self.assertFalse({name for name, _ in last} & {"USER", "ENTRYPOINT", "HEALTHCHECK"}, "they are the other image's")

    def test_what_runs_is_nobody(self):
        self.assertEqual(len(self.of("USER")), 1)
        self.assertRegex(self.of("USER")[0], r"^[1-9]\d*$")
        self.assertTrue(any(f"--uid {self.of('USER')[0]} " in run for run in self.of("RUN")))
        self.assertEqual(json.loads(self.of("ENTRYPOINT")[0]), ["choral"])
        self.assertEqual(json.loads(self.of("HEALTHCHECK")[0].partition("CMD ")[2])[:2], ["bash", "-c"])

    def test_grammars_are_those_of_dev(self):
        pins = re.search(r"kGrammarPackages=\((.*)\)", (PROJECT / "dev").read_text())[1]
        made = dict(self.stages)["grammars"]
        self.assertTrue(any(pins in arguments for _, arguments in made), pins)
        folder, = [arguments.split()[-1] for arguments in self.of("COPY") if "--from=grammars" in arguments]
        self.assertEqual(self.of("ENV"), [f"CHORAL_XGRAMMAR={folder}", "CHORAL_PACKED_CACHE=off"])

    @unittest.skipUnless(shutil.which("dpkg-query"), "no Debian packages here")
    def test_the_image_has_every_library_that_the_program_asks_for(self):
        wanted = next(run for run in self.of("RUN") if "apt-get install" in run).partition("--no-install-recommends")[2].partition("&&")[0].split()
        there = installed_with(wanted)
        sys.path.insert(0, str(PROJECT / "packaging"))
        import sbom

        for file, package in sbom.owners([*sbom.linked_files(CHORAL), *sbom.opened_files()]).items():
            name = package.partition(":")[0]
            if not (name.startswith("lib") and name.endswith(("asan8", "ubsan1", "tsan2"))):
                self.assertTrue(name in there or query("${Priority}", name) == "required", f"{file} is of {name}")


if __name__ == "__main__":
    del sys.argv[1]
    unittest.main(verbosity=2)
