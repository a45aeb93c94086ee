#!/usr/bin/env python3
"""The commands of the documents, run as they stand: docs_test.py CHORAL [unittest arguments]. Those about serving: ../http/docs_test.py.

Of every block without a language, each line with the program in it runs by itself, as do those that install it or compile a plug-in, in a
home where the names that the documents use are files: MODEL a tiny model, ./sql an adapter, notes.txt a text, build/release this build. A
hub on localhost has org/name. What is not run is listed with its reason; a comment `<!-- not run: why -->` before a block excuses it."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import program
import small_hub
import tiny_model

PROJECT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve().parents[1]
SERVING = re.compile(r"/serving[./]")  # run by ../http/docs_test.py
PAGES = [page for page in (PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))) if not SERVING.search(str(page))]
BLOCK = re.compile(r"^(<!-- not run: .+ -->\n)?```([^\n`]*)\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"(?:^|[\s|(])\$?(choral\s+\w+|cmake --install|cc -)")
NOT_RUN = {
    "choral serve": "../http/docs_test.py does",
    "choral load": "wants a server; load_test.py has one",
}


def commands():
    """Page, line number, command line."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            first = text.count("\n", 0, block.start(3)) + 1
            for i, line in enumerate(block[3].splitlines()):
                found = COMMAND.search(line)
                if not block[1] and not block[2] and found and found[1] not in NOT_RUN:
                    yield page.relative_to(PROJECT), first + i, line


class DocsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.home = pathlib.Path(cls.temp.name)
        (cls.home / "bin").mkdir()
        (cls.home / "bin" / "choral").symlink_to(pathlib.Path(program.CHORAL).resolve())
        (cls.home / "build").mkdir()
        for name in ("release", "dev"):
            (cls.home / "build" / name).symlink_to(BUILD)
        (cls.home / "PREFIX").symlink_to(PROJECT)
        recipe = (PROJECT / "docs" / "recipes" / "add-a-platform.md").read_text(encoding="utf-8")
        (cls.home / "tiny.c").write_text(re.search(r"^```c\n(.*?choral_plugin_query.*?)^```$", recipe, re.M | re.S)[1])
        (cls.home / ".config" / "fish" / "completions").mkdir(parents=True)
        for name in ("MODEL", "BIG"):
            tiny_model.write_model(cls.home / name, context=2048)
        subprocess.run([program.CHORAL, "quantize", "BIG", "BIG-Q4.gguf", "--scheme", "q8_0", "--format", "gguf", "-q"], check=True,
                       cwd=cls.home, stdout=subprocess.DEVNULL)
        for seed, name in enumerate(("pirate", "yoda", "sql")):
            for root in ("adapters", "examples/adapters"):
                tiny_model.write_adapter(cls.home / root / name, seed)
        for name in ("sql", "my-lora"):
            tiny_model.write_adapter(cls.home / name, 7)
        text = "The quick brown fox jumps over the lazy dog. " * 40
        for name in ("notes.txt", "FILE", "README.md"):
            (cls.home / name).write_text(text)
        (cls.home / "requests.jsonl").write_text('{"prompt": "Hi", "max_tokens": 4}\n')
        model = {path.name: path.read_bytes() for path in (cls.home / "MODEL").iterdir()}
        name = small_hub.Repository(model, large=["model.safetensors"])
        name.revisions["refs/pr/1"] = name.commit
        gguf = small_hub.Repository({"m.Q4_K_M.gguf": b"GGUF", "m.Q8_0.gguf": b"GGUF8"}, large=["m.Q4_K_M.gguf", "m.Q8_0.gguf"])
        cls.hub = small_hub.Hub({"org/name": name, "org/name-GGUF": gguf})
        cls.environment = {**{k: v for k, v in os.environ.items() if not k.startswith(("CHORAL_", "XDG_", "HF_"))}, "HOME": str(cls.home),
                           "HF_ENDPOINT": cls.hub.endpoint, "DESTDIR": f"{cls.home}/root", "PATH": f"{cls.home}/bin:{os.environ['PATH']}", "choral": program.CHORAL,
                           "model": str(cls.home / "MODEL")}

    @classmethod
    def tearDownClass(cls):
        cls.hub.close()
        cls.temp.cleanup()

    def test_commands_run_as_they_stand(self):
        for page, number, line in commands():
            with self.subTest(f"{page}:{number}: {line}"):
                for made in ("OUT", "model.gguf", "answers.jsonl"):
                    path = self.home / made
                    shutil.rmtree(path, ignore_errors=True)
                    path.unlink(missing_ok=True)
                done = subprocess.run(["bash", "-c", line], cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, errors="replace", timeout=300)
                self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])

    def test_there_are_commands_of_every_kind(self):
        found = {COMMAND.search(line)[1] for _, _, line in commands()}
        self.assertGreaterEqual(found, {"cmake --install", "cc -", *(
            f"choral {name}" for name in ("generate", "chat", "adapter", "pull", "eval", "quantize", "doctor", "completion", "bench"))})


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    unittest.main()
