#!/usr/bin/env python3
"""Command lines of llama.cpp and vLLM: foreign_flags_test.py CHORAL [unittest arguments]. Makes its own model; nothing is loaded but
where it says so."""

import pathlib
import re
import sys
import tempfile
import unittest

import program
import tiny_model

TEMP = tempfile.TemporaryDirectory()
MODEL = pathlib.Path(TEMP.name) / "tiny"
LIST = pathlib.Path(__file__).with_name("foreign_flags.txt")
ONE = ("generate", MODEL, "-p", "x", "--max-tokens", "1", "-q")


def flags_of_others():
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#") and not line.endswith(":"):
            yield from line.split()


class ForeignFlagsTest(program.ProgramTest):
    def test_each_flag_of_theirs_is_ours_or_told(self):
        for command in ("serve", "generate", "chat"):
            ours = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w.-]*", self.run_ok(command, "--help").stdout))
            theirs = [flag for flag in dict.fromkeys(flags_of_others()) if flag not in ours]
            self.assertGreater(len(theirs), 400)
            # All wrong ones are told at once; what changes nothing is left out, and so is not among them.
            told = self.run_fails(2, command, MODEL, *(f"{flag}=what?" for flag in theirs), says=["several words are wrong"]).stderr
            told = re.findall(r"^  has no flag (\S+?)(?:; (.*))?$", told, re.M)
            for flag, hint in told:
                self.assertRegex(hint, "^here it is |^choral [a-z-]+ has it$", f"{command} {flag}")
            self.assertGreater(len(told), 250)
            self.assertEqual(set(flag for flag, _ in told) - set(theirs), set())
        self.run_fails(2, "serve", MODEL, "--seed", "0", says=["has no flag --seed; here it is --engine-seed N"])
        self.run_fails(2, "serve", MODEL, "--temp", "0", says=["has no flag --temp; here it is a field of each request"])
        self.run_fails(2, "chat", MODEL, "--port", "8000", says=["has no flag --port; choral serve has it"])

    def test_what_changes_nothing_is_left_out_with_a_note(self):
        args = ("generate", MODEL, "-p", "x", "--max-tokens", "1")
        done = self.run_ok(*args, "--enable-lora", "--trust-remote-code", "--jinja", "-ngl", "0", "--pipeline-parallel-size=1", "-fa", "on",
                           "--no-mmap", "--flash-attn", "--block-size", "16", "--enable_auto_tool_choice")
        for flag in ("--enable-lora", "--trust-remote-code", "--jinja", "-ngl 0", "--pipeline-parallel-size 1", "-fa on", "--no-mmap",
                     "--flash-attn", "--block-size 16", "--enable_auto_tool_choice"):
            self.assertIn(f"choral: {flag} changes nothing here", done.stderr)
        self.assertNotIn("changes nothing", self.run_ok(*args, "-q", "--jinja").stderr)
        self.run_fails(2, *args, "-ngl", "99", says=["choral generate has no flag -ngl; here it is --device NAME"])
        self.run_fails(2, *args, "-tp", "2", says=["no flag -tp", "here it is --tensor-parallel-size N"])
        self.run_fails(2, *args, "-pp", "2", says=["no flag -pp", "one process"])

    def test_numa_takes_llama_cpps_words_and_nodes(self):
        for numa in ("auto", "off", "distribute", "isolate", "numactl"):
            self.run_ok("doctor", "-q", "--numa", numa)
        self.run_fails(2, "doctor", "--numa", "9999", says=["--numa", "node 9999", "nodes that have: "])
        self.run_fails(2, "doctor", "--numa", "spread", says=["--numa", "auto, off, distribute, isolate"])

    def test_values_are_not_taken_for_flags(self):
        self.run_ok(*ONE[:3], "-fast", *ONE[4:], "--stop", "--jinja")
        self.run_ok(*ONE[:3], "--mlock", *ONE[4:])
        self.run_fails(2, *ONE, "--", "-ngl", says=["-ngl"])

    def test_no_flag_is_told_to_be_its_opposite(self):
        for flag in ("--no-enable-prefix-caching", "--no-enable-chunked-prefill"):
            self.run_ok(*ONE, flag)
        for typed, never in (("--no-enable-prefix-cachin", "--enable-prefix-caching?"), ("--prefix-caching", "--no-prefix-caching?"),
                             ("--disable-prefix-caching", "--enable-prefix-caching?"), ("--no-chunked-prefil", "--enable-chunked-prefill?")):
            self.assertNotIn(never, self.run_fails(2, *ONE, typed, says=[f"no flag {typed}"]).stderr)
        config = pathlib.Path(TEMP.name) / "choral.conf"
        config.write_text("no-enable-prefix-caching = true\n")
        self.assertNotIn("mean 'enable-prefix-caching'",
                         self.run_fails(2, "config", "show", "--config", config, says=["no flag is called"]).stderr)

    def test_all_wrong_flags_are_told_at_once(self):
        told = self.run_fails(2, "generate", MODEL, "--promt", "x", "-ngl", "99", "-fast", "--gpu-memory-utilization=0.9", "--top-k", "many").stderr
        for text in ("several words are wrong (choral generate --help)", "  has no flag --promt; did you mean --prompt?",
                     "  has no flag -ngl; here it is --device", "  has no flag -fast; flags of several letters begin with --",
                     "  has no flag --gpu-memory-utilization; here it is", "  --top-k: 'many' is not a number"):
            self.assertIn(text, told)

    def test_lines_of_a_config_file(self):
        config = pathlib.Path(TEMP.name) / "vllm.yaml"
        config.write_text("enable-lora: true\nport: 8123\ntensor_parallel_size: 1\n")
        done = self.run_ok("config", "show", "--config", config)
        self.assertRegex(done.stdout, r"(?m)^--port +8123 ")
        self.assertIn("vllm.yaml:1: enable-lora changes nothing here", done.stderr)
        config.write_text("gpu-memory-utilization: 0.9\n")
        self.run_fails(2, "config", "show", "--config", config, says=["vllm.yaml:1", "here it is --kv-cache-memory"])

    def test_whole_command_lines_of_others(self):
        for words, says in [(("-m", "M.gguf", "-p", "hi there"), "choral generate -m M.gguf -p 'hi there'"),
                            (("-m", "M.gguf", "-cnv"), "choral chat -m M.gguf -cnv"),
                            (("-m", "M.gguf"), "choral chat -m M.gguf"),
                            (("-m", "M.gguf", "--port", "8080"), "choral serve -m M.gguf --port 8080"),
                            (("-hf", "org/name-GGUF"), "choral wants a command in front of -hf"),
                            ((MODEL, "-p", "x"), f"Is it a model? choral generate {MODEL} -p x"),
                            (("server", "-m", "x"), "no command 'server'; here it is choral serve -m x"),
                            (("run", "x"), "no command 'run'; here it is choral chat x"),
                            (("batch", "-i", "f"), "no command 'batch'; here it is choral run-batch -i f"),
                            (("bench", "serve", "--model", "x"), "no command 'bench serve'; here it is `choral load`"),
                            (("bench", "throughput"), "no command 'bench throughput'; here it is `choral bench MODEL`"),
                            (("genrate", "-m", "x"), "no command 'genrate'; did you mean generate?"),
                            (("--verbos",), "no flag --verbos"),
                            (("generate", "serve", "-p", "x"), "no model 'serve'")]:
            self.run_fails(3 if "no model" in says else 2, *words, says=[says])
        self.assertIn("Usage: choral ", program.choral().stderr)

    def test_minus_one_token_is_as_many_as_fit(self):
        flags = ("generate", MODEL, "-p", "x", "--temperature", "0", "--ignore-eos", "--json", "-c", "64")
        whole = self.run_ok(*flags, "-n", "0").stdout
        for flag in ("-n", "--max-tokens", "--predict"):
            self.assertEqual(self.run_ok(*flags, flag, "-1").stdout, whole)
        self.run_fails(2, *flags, "-n", "-2", says=["--max-tokens: -2 tokens?", "0 or -1 for up to the context's end"])


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    tiny_model.write_model(MODEL)
    unittest.main()
