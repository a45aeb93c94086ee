#!/usr/bin/env python3
"""What the shells make of `choral completion`: completion_test.py CHORAL [unittest arguments]."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import program

TEMP = tempfile.TemporaryDirectory()
FOLDER = pathlib.Path(TEMP.name)
COMMANDS = ("generate", "serve", "config", "config show", "chat", "adapter", "adapter check", "doctor", "completion", "load", "plan")


def script(shell):
    path = FOLDER / f"completion.{shell}"
    path.write_text(program.choral("completion", shell).stdout)
    return path


def flags_of(*command):
    """As its help lists them."""
    text = program.choral(*command, "--help").stdout
    heads = re.findall(r"^  (-.*?)(?:  |$)", text, re.M)
    return {name for head in heads for name in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", head.split(" ")[0])}


class BashTest(unittest.TestCase):
    def complete(self, line):
        """What bash offers at the end of the line, whose words have blanks between them."""
        words = [w for w in re.split(r" |(=)", line) if w] + ([""] if line.endswith(" ") else [])
        code = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _choral; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "--norc", "-c", code, "bash", str(script("bash")), *words], capture_output=True, text=True, cwd=FOLDER, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""), line)
        return [word for word in done.stdout.split("\n") if word]

    def test_commands(self):
        self.assertEqual(self.complete("choral do"), ["doctor"])
        self.assertIn("serve", self.complete("choral "))
        self.assertEqual(self.complete("choral config "), ["show"])
        self.assertEqual(sorted(self.complete("choral completion ")), ["bash", "fish", "zsh"])

    def test_every_flag_of_every_command(self):
        for command in COMMANDS:
            wanted = flags_of(*command.split())
            self.assertIn("--help", wanted)
            self.assertEqual(set(self.complete(f"choral {command} -")), wanted, command)
        self.assertEqual(self.complete("choral serve --access"), ["--access-log"])
        self.assertEqual(self.complete("choral doctor --access"), [])

    def test_values(self):
        (FOLDER / "a folder").mkdir(exist_ok=True)
        (FOLDER / "a file").touch()
        self.assertEqual(self.complete("choral serve --adapter-root a"), ["a folder"])
        self.assertEqual(self.complete("choral serve --adapter-root=a"), ["a folder"])
        self.assertEqual(sorted(self.complete("choral serve --config a")), ["a file", "a folder"])
        self.assertEqual(sorted(self.complete("choral serve --port 80 a")), ["a file", "a folder"])
        self.assertEqual(self.complete("choral serve --port a"), [])
        self.assertEqual(self.complete("choral serve --host="), [])
        self.assertEqual(self.complete("choral config show --port 1 --acc"), ["--access-log"])

    def test_a_real_terminal(self):
        path = script("bash")
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "PS1": "> ", "TERM": "dumb", "HISTFILE": ""})

        def wait_for(text):
            seen, end = "", time.monotonic() + 60
            while text not in seen and time.monotonic() < end:
                if select.select([terminal], [], [], 1)[0]:
                    seen += os.read(terminal, 4096).decode(errors="replace")
            self.assertIn(text, seen)

        try:
            wait_for("> ")
            os.write(terminal, f"source '{path}' && echo sourced-$((40 + 2))\n".encode())
            wait_for("sourced-42")
            os.write(terminal, b"choral qua\t")
            wait_for("choral quantize ")
            os.write(terminal, b"--cal\t")
            wait_for("--calibration ")
        finally:
            os.close(terminal)
            os.waitpid(pid, 0)


@unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
class ZshTest(unittest.TestCase):
    def zsh(self, code):
        done = subprocess.run(["zsh", "-f", "-c", code], capture_output=True, text=True, cwd=FOLDER, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_it_belongs_to_choral(self):
        path = script("zsh")
        self.zsh(f"zsh -n {path}")
        start = "autoload -Uz compinit && compinit -u -d $PWD/dump; "
        self.assertEqual(self.zsh(f"{start}source {path}; print $_comps[choral]"), "_choral\n")
        functions = FOLDER / "functions"
        functions.mkdir(exist_ok=True)
        (functions / "_choral").write_text(path.read_text())
        self.assertEqual(self.zsh(f"fpath=({functions} $fpath); {start}print $_comps[choral]"), "_choral\n")

    def test_a_real_terminal(self):
        """zsh's own way to have a terminal: what is shown after two tabs."""
        path = script("zsh")
        code = f"""zmodload zsh/zpty; zpty shell 'PS1="> " zsh -f -i'
            zpty -w shell 'autoload -Uz compinit; compinit -u -d $PWD/dump; unsetopt zle_bracketed_paste 2> /dev/null; source {path}; PS1="ready> "'
            zpty -r shell seen '*ready> *'; zpty -w -n shell $'choral quan\\t'; zpty -r shell seen '*quantize*'
            zpty -w -n shell $'--cali\\t'; zpty -r shell more '*--calibration*'; print -r -- "$seen$more"; zpty -d shell"""
        self.assertRegex(self.zsh(code), r"(?s)quantize.*--calibration")


@unittest.skipUnless(shutil.which("fish"), "there is no fish")
class FishTest(unittest.TestCase):
    def complete(self, line):
        code = f"source {script('fish')}; complete -C '{line}'"
        done = subprocess.run(["fish", "--no-config", "-c", code], capture_output=True, text=True, cwd=FOLDER, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""), line)
        return [word.split("\t")[0] for word in done.stdout.split("\n") if word]

    def test_commands_and_flags(self):
        self.assertEqual(self.complete("choral quan"), ["quantize"])
        self.assertEqual(self.complete("choral config "), ["show"])
        self.assertEqual(self.complete("choral serve --access"), ["--access-log"])
        self.assertEqual(self.complete("choral doctor --access"), [])
        self.assertEqual(self.complete("choral config show --access"), ["--access-log"])
        for command in COMMANDS:
            wanted = {name for name in flags_of(*command.split()) if name.startswith("--")}
            self.assertEqual(set(self.complete(f"choral {command} --")) & wanted, wanted, command)

    def test_values(self):
        (FOLDER / "only").mkdir(exist_ok=True)
        (FOLDER / "onlyfile").touch()
        self.assertEqual(self.complete("choral serve --adapter-root onl"), ["only/"])
        self.assertEqual(sorted(self.complete("choral serve --config onl")), ["only/", "onlyfile"])
        self.assertEqual(sorted(self.complete("choral serve onl")), ["only/", "onlyfile"])
        self.assertEqual(self.complete("choral onl"), [])


if __name__ == "__main__":
    program.CHORAL = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
