"""The program under test, and what tests of it share: runs that must succeed, runs that must fail with a code and say why."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

CHORAL = ""  # set by the test's main


def choral(*args, stdin="", env=None, cwd=None):
    return subprocess.run([CHORAL, *map(str, args)], input=stdin, cwd=cwd, capture_output=True, text=True, encoding="utf-8", errors="replace",
                          timeout=300, env={**os.environ, **(env or {})})


def json_lines(text):
    """Each line's value. str.splitlines() would break at U+2028 and its like, which JSON may hold as they are."""
    return [json.loads(line) for line in text.split("\n") if line]


class ProgramTest(unittest.TestCase):
    def run_ok(self, *args, **kwargs):
        done = choral(*args, **kwargs)
        self.assertEqual(done.returncode, 0, f"{args}: {done.stdout}{done.stderr}")
        return done

    def run_fails(self, code, *args, says=(), **kwargs):
        done = choral(*args, **kwargs)
        self.assertEqual(done.returncode, code, f"{args}: {done.stdout}{done.stderr}")
        for text in says:
            self.assertIn(text, done.stderr)
        return done

    def run_jsonl(self, model, lines, *flags, code=0):
        """Gives the records and what was said on stderr."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder) / "in.jsonl", pathlib.Path(folder) / "out.jsonl"
            source.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
            done = choral("generate", model, "--input", source, "--output", target, *flags)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertEqual(sorted(os.listdir(folder)), ["in.jsonl", "out.jsonl"])
            return json_lines(target.read_text(encoding="utf-8")), done.stderr
