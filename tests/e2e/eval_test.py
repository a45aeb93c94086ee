#!/usr/bin/env python3
"""`choral eval` from the outside: eval_test.py CHORAL [unittest arguments]. Makes its own model; needs nothing else."""

import json
import math
import os
import pathlib
import re
import sys
import tempfile
import unittest

import program
import tiny_model

TEMP = tempfile.TemporaryDirectory()
ROOT = pathlib.Path(TEMP.name)
MODEL, TEXT, ADAPTER = ROOT / "tiny", ROOT / "text.txt", ROOT / "lora"


class EvalTest(program.ProgramTest):
    def report(self, *flags):
        return json.loads(self.run_ok("eval", MODEL, "--text", TEXT, "--json", "-q", *flags).stdout)

    def test_is_the_mean_of_prompt_logprobs(self):
        ids = list(TEXT.read_bytes())
        windows = [ids[i:i + 64] for i in range(0, len(ids), 64)]
        lines = [{"prompt_token_ids": w, "max_tokens": 1, "prompt_logprobs": 0} for w in windows if len(w) > 1]
        for flags, extra in (((), {}), (("--lora", f"a={ADAPTER}", "--adapter", "a:0.5"), {"lora": [{"name": "a", "scale": 0.5}]})):
            records, _ = self.run_jsonl(MODEL, [line | extra for line in lines], *flags[:2])
            nll = [-p["logprob"] for r in records for p in r["prompt_logprobs"]]
            got = self.report("--ctx-size", "64", *flags)
            self.assertEqual((got["scored_tokens"], got["windows"], got["text_tokens"]), (len(nll), len(windows), len(ids)))
            self.assertAlmostEqual(got["nll"], sum(nll) / len(nll), places=5)
            self.assertAlmostEqual(got["perplexity"], math.exp(got["nll"]), places=6)
            self.assertGreater(got["nll_error"], 0)
            self.assertNotIn("reference", got)

    def test_the_only_adapter_is_measured(self):
        named = self.report("--lora", f"a={ADAPTER}", "--adapter", "a")
        for flags in (("--lora", f"a={ADAPTER}"), ("--lora", ADAPTER)):
            alone = self.report(*flags)
            self.assertEqual(alone["nll"], named["nll"])
            self.assertEqual(alone["adapter"], "a" if "=" in str(flags[1]) else ADAPTER.name)
        self.assertIn("with a, ", self.run_ok("eval", MODEL, "--text", TEXT, "--lora", f"a={ADAPTER}").stdout)
        base = self.report("--lora", f"a={ADAPTER}", "--adapter", "base")
        self.assertEqual((base["adapter"], base["nll"]), ("base", self.report()["nll"]))
        self.assertEqual(self.report("--lora", f"a={ADAPTER}", "--against", MODEL, "--against-adapter", "a")["adapter"], "base")

    def test_against_a_model_or_what_it_saved(self):
        rounded = ("--quantization", "w8a8_dynamic", "--ctx-size", "100")
        beside = self.report(*rounded, "--against", MODEL)["reference"]
        self.assertEqual(beside["model"], "tiny")
        self.assertGreater(beside["kl"], 0)
        self.assertLessEqual(beside["kl_median"], beside["kl_99"])
        self.assertLessEqual(beside["kl_99"], beside["kl_max"])
        self.assertLess(beside["same_top"], 1)
        saved = ROOT / "saved.logits"
        alone = self.report("--ctx-size", "100", "--save-logits", saved)
        self.assertEqual(beside["perplexity"], alone["perplexity"])
        later = self.report(*rounded, "--against-logits", saved)["reference"]
        for key in ("model", "perplexity", "perplexity_ratio", "same_top"):
            self.assertEqual(later[key], beside[key])
        self.assertAlmostEqual(later["kl"], beside["kl"], places=5)
        itself = self.report("--against", MODEL)["reference"]
        self.assertEqual([itself[key] for key in ("kl", "kl_max", "same_top", "perplexity_ratio")], [0, 0, 1, 1])

        # What an adapter changes, and what rounding changes under it.
        voice = ("--lora", f"a={ADAPTER}", "--adapter", "a", "--against", MODEL)
        self.assertGreater(self.report(*voice)["reference"]["kl"], 0)
        self.assertEqual(self.report(*voice, "--against-adapter", "a")["reference"]["kl"], 0)

        text = self.run_ok("eval", MODEL, "--text", TEXT, *rounded, "--against", MODEL).stdout
        for word in ("perplexity", "difference", "KL divergence", "same top token", "±"):
            self.assertIn(word, text)

        # A file that does not fit is refused with the reason, one that was cut too.
        self.run_fails(2, "eval", MODEL, "--text", TEXT, "--against-logits", saved, says=["--ctx-size 100"])
        other = ROOT / "other.txt"
        other.write_text("An" + TEXT.read_text()[2:])
        self.run_fails(2, "eval", MODEL, "--text", other, *rounded, "--against-logits", saved, says=["another text or tokenizer", "token 1 "])
        whole = saved.read_bytes()
        for size in (0, 20, 200, len(whole) - 1):
            saved.write_bytes(whole[:size])
            self.run_fails(4, "eval", MODEL, "--text", TEXT, *rounded, "--against-logits", saved, says=["saved.logits"])

    def test_page(self):
        text, path = ROOT / "<script>&'\".txt", ROOT / "eval.html"
        text.write_text(TEXT.read_text())
        args = ("eval", MODEL, "--text", text, "--lora", f"a={ADAPTER}", "--adapter", "a", "--html", path)
        for against, names in (((), ["tiny with a"]), (("--against", MODEL), ["tiny with a", "against tiny"])):
            said = self.run_ok(*args, *against).stdout
            page = program.Page(path)
            tables = list(page.tables())
            self.assertEqual([caption for caption, _ in tables], names)
            self.assertIn(text.name, page.words("p")[0])
            # Every figure of the text report, and no other.
            figures = [(line[:18].strip(), line[18:]) for line in said.splitlines() if " with a, " not in line and line not in names]
            self.assertEqual([(row["figure"], row["value"]) for _, rows in tables for row in rows], figures)
            charts = list(page.root.iter("svg"))
            self.assertEqual([len(list(chart.iter("rect"))) for chart in charts], [64] * (1 + bool(against)))
            self.assertEqual(len(list(charts[0].iter("line"))), 64 * bool(against))
        # The stretches are the whole text, and their mean is the report's.
        report = json.loads(self.run_ok(*args, "--json").stdout)
        told = [re.fullmatch(r"tokens (\d+) to (\d+): (.*)", words).groups() for words in program.Page(path).words("title")[1:]]
        counts = [int(end) - int(begin) + 1 for begin, end, _ in told]
        self.assertEqual(sum(counts), report["scored_tokens"])
        mean = sum(n * float(value) for n, (_, _, value) in zip(counts, told)) / sum(counts)
        self.assertAlmostEqual(mean, report["nll"], places=3)
        # What stood there stays when nothing was measured.
        before = path.read_text()
        self.run_fails(2, *args, "--ctx-size", "1")
        self.assertEqual(path.read_text(), before)
        self.run_fails(3, *args[:-1], ROOT / "no" / "x.html", says=["x.html"])

    def test_nothing_is_left_of_a_file_that_failed(self):
        folder = ROOT / "kept"
        folder.mkdir()
        self.run_fails(2, "eval", MODEL, "--text", TEXT, "--save-logits", folder / "x", "--ctx-size", "1", says=["--ctx-size 1"])
        self.assertEqual(os.listdir(folder), [])
        self.run_fails(3, "eval", MODEL, "--text", TEXT, "--save-logits", folder / "no" / "x", says=["x"])
        self.run_fails(2, "eval", MODEL, "--text", TEXT, "--save-logits", "-", says=["standard output has the report"])

    def test_wrong_words(self):
        self.run_fails(2, "eval", MODEL, says=["no text was given"])
        self.run_fails(2, "eval", "--text", TEXT, says=["no model was given"])
        self.run_fails(3, "eval", MODEL, "--text", "/no/such/text", says=["--text", "/no/such/text"])
        for name, content, says in (("empty", b"", "is empty"), ("one", b"a", "1 token, of which none counts"), ("latin", b"gr\xfcn", "not UTF-8 at byte 2")):
            (ROOT / name).write_bytes(content)
            self.run_fails(2, "eval", MODEL, "--text", ROOT / name, says=[says, name])
        for flags, says in ((("--ctx-size", "257"), "made for 256 positions"), (("--ctx-size", "-2"), "--ctx-size -2"), (("--tokens", "-1"), "--tokens -1"),
                            (("--min-context", "0"), "--min-context 0"), (("--against-adapter", "a"), "needs --against"),
                            (("--against", MODEL, "--against-logits", "x"), "either"), (("--lora", f"a={ADAPTER}", "--lora", f"b={ADAPTER}"), "--adapter"), (("--adapter-root", ADAPTER.parent), "--adapter"),
                            (("--adapter", ""), "--adapter")):
            self.run_fails(2, "eval", MODEL, "--text", TEXT, *flags, says=[says])
        self.run_fails(3, "eval", MODEL, "--text", TEXT, "--adapter", "nobody", says=["nobody"])
        self.run_fails(3, "eval", MODEL, "--text", TEXT, "--against", "/no/such/model", says=["the reference"])


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    tiny_model.write_model(MODEL)
    tiny_model.write_adapter(ADAPTER, seed=3)
    TEXT.write_text("It was a bright cold day in April, and the clocks were striking thirteen.\n" * 7)
    unittest.main()
