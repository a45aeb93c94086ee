#!/usr/bin/env python3
"""The commands of the documents about serving, run as they stand: docs_test.py CHORAL [unittest arguments]. Needs curl and openai.

In docs/serving.md and docs/serving/ every block between fences says what it is:
  sh       run by bash, line after line; `choral serve …` stays in the background until the next one or the document's end
  python   run by Python
  conf     a file, whose name is its first line: # NAME
Blocks of other languages are only shown. A comment `<!-- not run: why -->` on the line before a block excuses it. Of README.md the blocks
of sh and python are run, while a server serves as `./dev demo` leaves it.

They run in an empty home where MODEL's name is a tiny model's file and ./adapters holds adapters of the names that the documents use;
port 8000 becomes the one that the server got.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import served
from served import tiny_model

served.need("openai")

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SERVING = [PROJECT / "docs" / "serving.md", *sorted((PROJECT / "docs" / "serving").glob("*.md"))]
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.M | re.S)
SERVE = re.compile(r"^choral serve .*(?:\\\n.*)*$", re.M)
CURLRC = "fail-with-body\nsilent\nshow-error\n"


def blocks(document):
    """Each block's line, language, text, and whether it is excused."""
    text = document.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        before = text[:found.start()].rstrip("\n").rsplit("\n", 1)[-1]
        yield text.count("\n", 0, found.start()) + 1, found[1].strip(), found[2], re.match(r"<!-- not run: .+ -->$", before) is not None


class Home:
    """An empty home with what the documents name, and the server that was started in it."""

    def __init__(self):
        self.temp = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temp.name)
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "choral").symlink_to(pathlib.Path(served.CHORAL).resolve())
        (self.folder / ".curlrc").write_text(CURLRC)
        tiny = tiny_model.write_model(self.folder / "tiny", context=512)
        subprocess.run([served.CHORAL, "quantize", str(tiny), str(self.folder / "SmolLM2-135M-Instruct.gguf"), "--scheme", "q8_0", "--format",
                        "gguf", "-q"], check=True, stdout=subprocess.DEVNULL)
        for seed, name in enumerate(("pirate", "yoda", "sql")):
            tiny_model.write_adapter(self.folder / "adapters" / name, seed)
        self.environment = {**{k: v for k, v in os.environ.items() if not k.startswith(("CHORAL_", "XDG_"))}, "HOME": str(self.folder),
                            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "CHORAL_PORT": "0", "CHORAL_THREADS": "2",
                            "KEY": "sk-0123456789abcdef"}
        self.server = None

    def serve(self, command):
        self.end_server()
        self.server = served.Server(command=["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment)

    def end_server(self):
        if self.server and self.server.stop() != 0:
            raise AssertionError("the server did not end well: " + "".join(self.server.said))
        self.server = None

    def run(self, command, place):
        """What it prints."""
        if self.server:
            command = [part.replace(":8000", f":{self.server.port}") for part in command]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=served.LONG)
        if done.returncode != 0:
            raise AssertionError(f"{place}: exit code {done.returncode}\n{command[-1]}\n{done.stdout}{done.stderr}")
        return done.stdout

    def run_lines(self, text, place):
        if text.strip():
            out = self.run(["bash", "-euo", "pipefail", "-c", text], place)
            if "curl " in text and not out.strip():
                raise AssertionError(f"{place}: curl printed nothing")

    def run_block(self, language, text, place):
        if language == "python" and "from choral import" in text:
            return  # ../python/docs_test.py runs it
        if language == "python":
            if not self.run([sys.executable, "-c", text], place).strip():
                raise AssertionError(f"{place}: it printed nothing")
        elif language == "conf":
            name = re.match(r"# ([\w.-]+)\n", text)
            if not name:
                raise AssertionError(f"{place}: the first line of a file is its name: # NAME")
            (self.folder / name[1]).write_text(text)
        else:
            at = 0
            for found in SERVE.finditer(text):
                self.run_lines(text[at:found.start()], place)
                self.serve(found[0])
                at = found.end()
            self.run_lines(text[at:], place)


class DocumentsTest(unittest.TestCase):
    def run_document(self, document, languages, before=""):
        """How many blocks were run."""
        home, count = Home(), 0
        self.addCleanup(home.temp.cleanup)
        self.addCleanup(lambda: home.server and home.server.process.kill())
        if before:
            home.serve(before)
        for line, language, text, excused in blocks(document):
            if excused or language not in languages:
                continue
            with self.subTest(f"{document.name}:{line}"):
                home.run_block(language, text, f"{document.relative_to(PROJECT)}:{line}")
                count += 1
        home.end_server()
        return count

    def test_what_docs_serving_says(self):
        ran = {document.name: self.run_document(document, ("sh", "python", "conf")) for document in SERVING}
        self.assertGreaterEqual(ran["serving.md"], 5, ran)
        self.assertGreaterEqual(ran["keys.md"], 2, ran)

    def test_what_the_readme_says_of_serving(self):
        ran = self.run_document(PROJECT / "README.md", ("sh", "python"),
                                "choral serve SmolLM2-135M-Instruct.gguf --served-model-name smollm2 --adapter-root ./adapters")
        self.assertGreaterEqual(ran, 2)

    def test_every_block_says_what_it_is(self):
        for document in SERVING:
            for line, language, _, _ in blocks(document):
                self.assertTrue(language, f"{document.relative_to(PROJECT)}:{line}: say what this block is, such as sh: then it is run here")

    def test_what_to_install_is_what_the_server_says(self):
        files = served.Files()
        server = served.Server(files.model, env={"CHORAL_XGRAMMAR": "nowhere"})
        answer = server.call("POST", "/v1/completions", {"prompt": "x", "structured_outputs": {"regex": "a"}})[2]
        self.assertEqual(server.stop(), 0)
        command = re.search(r"pip install[\w=. -]+\d", answer["error"]["message"])[0]
        self.assertIn(command, SERVING[0].read_text(encoding="utf-8"))


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    if not shutil.which("curl"):
        print("skipped: no curl here; ./dev test installs it")
        sys.exit(77)
    unittest.main(verbosity=2)
