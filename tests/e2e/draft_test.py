#!/usr/bin/env python3
"""Draft models on the command line: draft_test.py CHORAL [unittest arguments]. Makes its own models."""

import json
import pathlib
import sys
import tempfile
import unittest

import program
import tiny_model

TEMP = tempfile.TemporaryDirectory()
ROOT = pathlib.Path(TEMP.name)
MODEL, DRAFT, OTHER = ROOT / "tiny", ROOT / "small", ROOT / "other"
PROMPT = ("-p", "It is said again. It is said again. It is", "--max-tokens", "60", "--temperature", "0", "--ignore-eos")


class DraftTest(program.ProgramTest):
    def test_answers_are_the_same(self):
        plain = self.run_ok("generate", MODEL, *PROMPT, "--speculative", "off").stdout
        for flags in (("--draft-model", DRAFT), ("--model-draft", DRAFT), ("--speculative", f"draft={DRAFT}"),
                      ("--speculative", f"ngram,draft={DRAFT}", "--draft-quantization", "w8a16")):
            done = self.run_ok("generate", MODEL, *PROMPT, "-v", *flags)
            self.assertEqual(done.stdout, plain)
            self.assertIn("draft model: small, ", done.stderr)

    def test_adapters_have_their_own(self):
        flags = ("--lora", f"a={ROOT / 'a'}", "--adapter", "a")
        plain = self.run_ok("generate", MODEL, *PROMPT, *flags).stdout
        done = self.run_ok("generate", MODEL, *PROMPT, *flags, "-v", "--draft-model", DRAFT, "--draft-lora", f"a={ROOT / 'a'}")
        self.assertEqual(done.stdout, plain)
        self.assertRegex(" ".join(done.stderr.replace("choral:", "").split()), r"draft model: small, .* 1 adapters")

    def test_what_cannot_be_is_told(self):
        for flags, says in ((("--draft-model", OTHER), ["--draft-model", "its tokenizer is another: token 1 is '<fim_prefix>' there"]),
                            (("--draft-model", ROOT / "nothing"), ["--draft-model"]),
                            (("--draft-model", DRAFT, "--draft-lora", f"a={ROOT / 'nothing'}"), ["--draft-lora"]),
                            (("--draft-lora", f"a={ROOT / 'a'}"), ["--draft-lora a: there is no draft model"]),
                            (("--draft-quantization", "w8a16"), ["--draft-quantization w8a16: there is no draft model"]),
                            (("--draft-model", DRAFT, "--draft-quantization", "w9"), ["--draft-model", "w9"]),
                            (("--draft-model", DRAFT, "--speculative", "off"), ["--speculative off"])):
            done = program.choral("generate", MODEL, *PROMPT, *flags)
            self.assertNotEqual(done.returncode, 0, flags)
            for text in says:
                self.assertIn(text, " ".join(done.stderr.split()))
        self.run_fails(2, "generate", MODEL, "-p", "x", "-md", DRAFT, says=["no flag -md; here it is --draft-model MODEL"])

    def test_its_memory_is_planned(self):
        self.assertRegex(self.run_ok("doctor", MODEL, "--draft-model", DRAFT).stdout, r"memory budget +draft model [\d.]+ .iB, weights ")
        self.assertIn("its tokenizer is another", program.choral("doctor", MODEL, "--draft-model", OTHER).stdout)
        plan = ("plan", MODEL, "--draft-model", DRAFT, "--rate", "1", "--prompt-tokens", "8", "--max-tokens", "8", "--quick")
        self.assertRegex(self.run_ok(*plan).stdout, r"draft model [\d.]+ .iB, which guesses nothing in these figures")
        self.assertGreater(json.loads(self.run_ok(*plan, "--json").stdout)["memory"]["draft_model_bytes"], 100_000)


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    for folder in (MODEL, DRAFT):
        tiny_model.write_model(folder)
    tiny_model.write_model(OTHER, fills_gaps=True)
    tiny_model.write_adapter(ROOT / "a", seed=3)
    unittest.main()
