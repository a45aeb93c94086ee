"""The blocks of docs/python.md, docs/lora-ops.md and README.md run, in their order, as a reader would run them: beside the demo's model and adapters."""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import package

import choral
from choral.server import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = {
    "docs/python.md": ["The capital of France is", "matey", "a dict: {", "pirate", "self_attn.q_proj", "█"],
    "docs/lora-ops.md": ["the base's: True", "W + B·A: True"],
    "README.md": ["pirate"],
}


def blocks(page):
    found = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    return [block for block in found if "openai" not in block or "Server(" in block]


class Docs(unittest.TestCase):
    def run_page(self, page):
        said = io.StringIO()
        names = {"__name__": "__docs__"}
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(said):
            pathlib.Path("SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(os.environ["CHORAL_DEMO_MODEL"])
            pathlib.Path("adapters").symlink_to(ROOT / "examples/adapters")
            pathlib.Path("examples").symlink_to(ROOT / "examples")
            for block in blocks(page):
                exec(compile(block, page, "exec"), names)
            if "llm" in names:
                names["llm"].close()
        return said.getvalue()

    def test_the_demo_of_the_package(self):
        cache = pathlib.Path(os.environ["CHORAL_DEMO_MODEL"]).parents[1]
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.html"
            done = subprocess.run([sys.executable, "-m", "choral", "demo", "Who are you?", "--html", page], capture_output=True, text=True,
                                  env={**os.environ, "CHORAL_CACHE": str(cache)}, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            for name in ("base", "butler", "emoji", "json", "pirate", "sql", "yoda"):
                self.assertIn(f"\n{name} ", done.stdout)
            self.assertIn('class="token parts"', page.read_text())

    def test_the_share_of_yes_is_the_servers(self):
        """Here because it needs a model to which "yes" is one token."""
        model = os.environ["CHORAL_DEMO_MODEL"]
        documents = ["A bear.", "Paris"]
        with choral.LLM(model, adapters={"yoda": ROOT / "examples/adapters/yoda"}) as llm:
            ours = [llm.score("bear", documents, score_by="yes-no", use_tqdm=False),
                    llm.score("bear", documents, score_by="yes-no", instruction="Find it", lora_request="yoda", use_tqdm=False)]
        with Server(model, ["--score-by", "yes-no"], adapters={"yoda": ROOT / "examples/adapters/yoda"}) as server:
            for got, more in zip(ours, ({}, {"model": "yoda", "instruction": "Find it"})):
                body = json.dumps({"text_1": "bear", "text_2": documents, **more}).encode()
                with urllib.request.urlopen(urllib.request.Request(server.url + "/v1/score", body, {"Content-Type": "application/json"})) as answer:
                    theirs = [one["score"] for one in json.load(answer)["data"]]
                self.assertEqual([round(one.outputs.score, 9) for one in got], [round(score, 9) for score in theirs])

    def test_pages(self):
        for page, expected in EXPECTED.items():
            said = self.run_page(page)
            for text in expected:
                self.assertIn(text, said, page)


if __name__ == "__main__":
    if "CHORAL_DEMO_MODEL" not in os.environ:
        print("skipped: CHORAL_DEMO_MODEL names no file; ./dev test fetches the model")
        sys.exit(77)
    package.main()
