#!/usr/bin/env python3
"""`choral quantize` from the outside: quantize_test.py CHORAL [unittest arguments]. Makes its own model; needs nothing else."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

import program
import tiny_model

TEMP = tempfile.TemporaryDirectory()
ROOT = pathlib.Path(TEMP.name)
MODEL = ROOT / "tiny"
SCHEMES = ("w8a8_dynamic", "w8a16", "w4a16", "w4a8_dynamic", "fp8")


class QuantizeTest(program.ProgramTest):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=ROOT))
        self.out = self.folder / "out"

    def logprobs(self, model, *flags):
        line = {"prompt": "The sea is", "max_tokens": 8, "temperature": 0, "logprobs": 3, "prompt_logprobs": 0}
        records, _ = self.run_jsonl(model, [line], *flags)
        return {key: value for key, value in records[0].items() if "prob" in key or key == "token_ids"}

    def test_answers_as_in_flight(self):
        for scheme in SCHEMES:
            out = self.folder / scheme
            said = self.run_ok("quantize", MODEL, out, "--scheme", scheme).stdout
            self.assertRegex(said, rf"/{scheme}: 14 linear layers as {scheme}; tensors .* in 1 file\n$")
            written = self.logprobs(out)
            self.assertTrue(written)
            self.assertEqual(written, self.logprobs(MODEL, "--quantization", scheme))
            self.assertNotEqual(written, self.logprobs(MODEL))
            self.assertEqual((out / "tokenizer.json").read_bytes(), (MODEL / "tokenizer.json").read_bytes())
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(SCHEMES))

    def test_modelslim_answers_as_in_flight(self):
        for scheme in ("w8a8_dynamic", "w8a16"):
            out = self.folder / scheme
            self.run_ok("quantize", MODEL, out, "--scheme", scheme, "--format", "modelslim")
            self.assertEqual((out / "config.json").read_text(), (MODEL / "config.json").read_text())
            self.assertEqual(self.logprobs(out), self.logprobs(MODEL, "--quantization", scheme))

    def test_what_is_there_is_replaced_only_by_force(self):
        self.run_ok("quantize", MODEL, self.out, "--scheme", "fp8")
        before = (self.out / "config.json").read_text()
        self.run_fails(2, "quantize", MODEL, self.out, "--scheme", "w8a16", says=["is not empty", "--force"])
        self.assertEqual((self.out / "config.json").read_text(), before)
        (self.out / "stale").write_text("")
        self.run_ok("quantize", MODEL, self.out, "--scheme", "w8a16", "--force")
        self.assertIn("pack-quantized", (self.out / "config.json").read_text())
        self.assertFalse((self.out / "stale").exists())
        (self.folder / "diary").mkdir()
        (self.folder / "diary" / "page").write_text("dear")
        self.run_fails(2, "quantize", MODEL, self.folder / "diary", "--scheme", "fp8", "--force", says=["holds no model"])
        self.run_fails(2, "quantize", MODEL, MODEL, "--scheme", "fp8", "--force", says=["is where the model"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["diary", "out"])

    # A limit on the size of files stops the writing as a full disk does.
    def test_a_file_that_cannot_be_written_leaves_nothing(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        done = subprocess.run([program.CHORAL, "quantize", MODEL, self.out, "--scheme", "w8a16"], preexec_fn=limit, capture_output=True, text=True, timeout=300)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cannot write", done.stderr)
        self.assertIn("model.safetensors", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_wrong_words(self):
        self.run_fails(2, "quantize", says=["no model was given"])
        self.run_fails(2, "quantize", MODEL, says=["no folder for the result"])
        self.run_fails(2, "quantize", MODEL, self.out, says=["no scheme was given"])
        self.run_fails(2, "quantize", MODEL, self.out, "--scheme", "q4", says=["--scheme q4: choose w8a8_dynamic, w8a8, w8a16"])
        self.run_fails(2, "quantize", MODEL, self.out, "--scheme", "fp8", "--format", "gguf", says=["gguf has no such scheme; choose q8_0, q4_0, q4_1"])
        self.run_fails(5, "quantize", MODEL, self.out, "--scheme", "w8a8", says=["w8a8_dynamic"])
        self.run_fails(3, "quantize", MODEL, self.folder / "no" / "out", "--scheme", "fp8", says=["make that first"])
        self.run_fails(2, "quantize", MODEL, self.out, "--scheme", "fp8", "--threads", "-1", says=["--threads -1"])
        self.run_fails(2, "quantize", MODEL, self.out, "--scheme", "fp8", "--ignore", "[", says=["--ignore"])
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    tiny_model.write_model(MODEL)
    unittest.main()
