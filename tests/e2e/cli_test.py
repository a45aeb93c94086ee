#!/usr/bin/env python3
"""The program `choral` from the outside: cli_test.py CHORAL [unittest arguments]. Makes its own model; needs nothing else."""

import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import program
import tiny_model

TEMP = tempfile.TemporaryDirectory()
MODEL = pathlib.Path(TEMP.name) / "tiny"


class CliTest(program.ProgramTest):
    def run_jsonl(self, lines, *flags, code=0):
        return super().run_jsonl(MODEL, lines, *flags, code=code)

    # --- the command line itself ---

    def test_version_and_help(self):
        self.assertRegex(self.run_ok("--version").stdout, r"^choral \d+\.\d+\.\d+\n$")
        for word in ("version", "-V"):
            self.assertEqual(self.run_ok(word).stdout, self.run_ok("--version").stdout)
        top = self.run_ok("--help").stdout
        self.assertEqual(self.run_ok("help").stdout, top)
        self.assertEqual(self.run_ok("help", "adapter", "check").stdout, self.run_ok("adapter", "check", "--help").stdout)
        self.assertNotIn("{false}", self.run_ok("serve", "--help").stdout)
        for command in ("generate", "chat", "tokenize", "bench", "eval", "quantize", "doctor"):
            self.assertIn(command, top)
            self.assertIn("MODEL", self.run_ok(command, "--help").stdout)
        self.assertIn("Exit codes", top)
        self.assertIn("Sampling", self.run_ok("generate", "--help").stdout)

    def test_wrong_words_name_the_nearest(self):
        self.run_fails(2, "generate", MODEL, "--promt", "x", says=["--promt", "did you mean --prompt?"])
        self.run_fails(2, "generate", MODEL, "--max-token=3", says=["--max-token", "--max-tokens"])
        self.run_fails(2, "genrate", MODEL, says=["'genrate'", "did you mean generate?"])
        self.run_fails(2)
        self.run_fails(2, "generate", "--prompt", "x", says=["no model"])
        self.run_fails(2, "generate", MODEL, "--max-tokens", "many", "--prompt", "x",
                       says=["--max-tokens: 'many' is not a number that it takes (choral generate --help)"])
        self.run_fails(2, "generate", MODEL, "-p", "x", "--seed", says=["--seed wants a value: --seed N"])
        self.run_fails(2, "generate", MODEL, "-p", "x", "--top-k", "1", "--top-k", "2", says=["--top-k is given 2 times; give it once"])
        self.run_fails(2, "serve", MODEL, env={"CHORAL_PORT": "http"}, says=["CHORAL_PORT", "'http' is not a number that it takes"])
        self.run_fails(2, "generate", MODEL, "--prompt", "x", "--kv-cache-memory", "2X", says=["--kv-cache-memory", "'2X'"])
        self.run_fails(2, "generate", MODEL, "--prompt", "x", "--dtype", "int3", says=["int3", "float32"])
        self.run_fails(2, "generate", MODEL, says=["no prompt"])
        self.run_fails(2, "generate", MODEL, "-ngl", "99", "-p", "x", says=["no flag -ngl", "--device"])
        self.run_fails(2, "serve", MODEL, "--gpu-memory-utilization=0.9", says=["--gpu-memory-utilization; here it is --kv-cache-memory"])
        self.run_fails(2, "generate", MODEL, "-fast", "-p", "x", says=["no flag -fast", "begin with --"])
        self.run_fails(2, "help", "generte", says=["no command 'generte'"])
        self.run_fails(2, "doctor", says=["CHORAL_LOG_LEVEL=bogus", "debug, info, warn, error or off"], env={"CHORAL_LOG_LEVEL": "bogus"})

    def test_what_is_wrong_is_said_before_a_model_is_opened(self):
        absent = "/no/such/model"
        for flags, says in [(["--temperature", "-1"], "temperature is -1"), (["--n", "0"], "n is 0"),
                            (["--adapter", "sql"], "no adapter is named 'sql'"), (["--compare", "base,sql"], "no adapter is named 'sql'"),
                            (["--logprobs", "3"], "add --json"), (["--resume"], "--input FILE.jsonl"),
                            (["--lora", "org/no-such"], "no adapter 'org/no-such' on this machine")]:
            self.run_fails(3 if "no adapter" in says else 2, "generate", absent, "-p", "x", *flags, says=[says])
        self.run_fails(2, "chat", absent, "--n", "2", says=["a chat has one answer"])
        self.run_fails(2, "chat", absent, "--logprobs", "2", says=["choral generate --json"])
        error = self.run_fails(2, "generate", absent, "-p", "x", "-p", "y", "--top-p", "7", says=["top_p is 7"]).stderr
        self.assertEqual(error.count("top_p"), 1, "once is enough")

    def test_numbers_out_of_range_are_refused_by_their_flag(self):
        for flag, value in [("--max-num-batched-tokens", "-1"), ("--max-num-seqs", "0"), ("--max-model-len", "-5"), ("--threads", "-1"),
                            ("--max-loras", "-1")]:
            self.run_fails(2, "generate", MODEL, "-p", "x", flag, value, says=[f"{flag} {value}: give 1 to"])
        for flag in ("--seed", "--engine-seed"):
            for value in ("-2", "99999999999999999999", "1.5", "x"):
                self.run_fails(2, "generate", MODEL, "-p", "x", flag, value, says=[flag, f"'{value}'", "2^64-1"])
        self.run_fails(2, "generate", MODEL, "-p", "x", "--max-tokens", "99999999999999999999", says=["--max-tokens"])
        self.run_fails(2, "generate", MODEL, "-p", "x", "--repetition-penalty", "1e-45", says=["repetition_penalty", "0.01"])
        self.run_fails(2, "generate", MODEL, "-p", "x", "--temperature", "nan", says=["temperature"])
        self.run_fails(7, "generate", MODEL, "-p", "x", "--kv-cache-memory", "1K", says=["1.0 KiB holds 0 tokens"])

    def test_numbers_are_decimal(self):
        args = ("generate", MODEL, "-p", "x", "--temperature", "0", "--ignore-eos", "--json")
        for number, tokens in (("010", 10), ("0009", 9), ("+012", 12)):
            self.assertEqual(len(json.loads(self.run_ok(*args, "--max-tokens", number).stdout)["token_ids"]), tokens)
        self.run_fails(2, *args, "--threads", "-010", says=["--threads -10: give 1 to"])
        self.run_fails(2, *args, "--max-tokens", "0ten", says=["--max-tokens", "0ten"])

    def test_seed_of_minus_one_is_none(self):
        texts = [self.run_ok("generate", MODEL, "-p", "x", "--max-tokens", "20", "--ignore-eos", "-q", *flags).stdout
                 for flags in ((), ("--seed", "-1"), ("--seed", "5"), ("--seed", "18446744073709551615"), ("--seed", "5"))]
        self.assertEqual(texts[2], texts[4])
        self.assertEqual(len(set(texts)), 4, "without a seed every run is another")
        got, _ = self.run_jsonl([{"prompt": "x", "seed": -1}, {"prompt": "x"}, {"prompt": "x", "seed": None}], "--seed", "5")
        self.assertEqual(got[1]["text"], got[2]["text"])
        self.assertNotEqual(got[0]["text"], got[1]["text"])

    def test_the_seed_of_a_run_is_told(self):
        first = self.run_ok("generate", MODEL, "-p", "x", "--max-tokens", "20", "-v")
        seed = re.search(r"--engine-seed (\d+)", first.stderr).group(1)
        again = self.run_ok("generate", MODEL, "-p", "x", "--max-tokens", "20", "--engine-seed", seed)
        self.assertEqual(first.stdout, again.stdout)

    def test_no_message_drives_a_terminal(self):
        evil = "a\x1b]0;owned\x07\r\x1b[2J\nchoral: error: forged"
        for args in ([evil], ["generate", evil, "-p", "x"], ["generate", MODEL, "-p", "x", "--lora", evil + "=/no/such"],
                     ["generate", MODEL, "-p", "x", "--lora", "a=/no/" + evil], ["generate", MODEL, "-p", "x", "--adapter", evil],
                     ["generate", MODEL, "--input", "/no/" + evil], ["generate", MODEL, "-p", "x", "--dtype", evil],
                     ["generate", MODEL, "-p", "x", "--seed", evil], ["generate", MODEL, "-p", "x", "--" + evil],
                     ["generate", MODEL, "-p", "x", "--chat-template", "/no/" + evil], ["tokenize", MODEL, "--ids", evil],
                     ["adapter", "check", "/no/" + evil], ["adapter", "list", "--adapter-root", "/no/" + evil], ["doctor", "/no/" + evil]):
            done = program.choral(*args)
            self.assertNotEqual(done.returncode, 0, args)
            for bad in ("\x1b", "\x07", "\r", "\nchoral: error: forged"):
                self.assertNotIn(bad, done.stdout + done.stderr, args)
        model = tiny_model.write_model(pathlib.Path(TEMP.name) / "evil")
        config = json.loads((model / "tokenizer_config.json").read_text())
        names = [{"name": name, "template": config["chat_template"]} for name in ("default", evil)]
        (model / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": names}))
        report = self.run_ok("doctor", model).stdout
        self.assertIn("forged", report)
        for bad in ("\x1b", "\x07", "\r", "\nchoral: error: forged"):
            self.assertNotIn(bad, report)
        got, said = self.run_jsonl([{"id": evil, "prompt": "x", evil: 1, "lora": evil}, {"id": evil, "stop": {evil: 1}}], code=2)
        self.assertEqual(got[0]["id"], evil, "an id comes back as it is")
        self.assertNotIn("\x1b", said)
        self.assertEqual(said.count("\nchoral: error"), 1)
        self.run_fails(3, "generate", MODEL, "-p", "x", "--adapter", "é記", says=["'é記'"])

    def test_exit_codes_of_bad_models(self):
        self.run_fails(3, "generate", "/no/such/model", "--prompt", "x", says=["/no/such/model"])
        broken = tiny_model.write_model(pathlib.Path(TEMP.name) / "broken")
        weights = broken / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:5000])
        self.run_fails(4, "generate", broken, "--prompt", "x", says=["model.safetensors"])
        strange = tiny_model.write_model(pathlib.Path(TEMP.name) / "strange")
        config = json.loads((strange / "config.json").read_text())
        (strange / "config.json").write_text(json.dumps(config | {"architectures": ["RwkvForCausalLM"]}))
        self.run_fails(5, "generate", strange, "--prompt", "x", says=["RwkvForCausalLM"])
        for change, says in [({"rms_norm_eps": -1}, "rms_norm_eps is -1"), ({"hidden_size": "64"}, "hidden_size is the string"),
                             ({"num_hidden_layers": None}, "num_hidden_layers is missing")]:
            (strange / "config.json").write_text(json.dumps(config | change))
            self.run_fails(4, "generate", strange, "--prompt", "x", says=["config.json", says])
        (strange / "config.json").write_text(json.dumps(config))
        evil = strange / "model.safetensors"
        evil.write_bytes(evil.read_bytes().replace(b'"lm_head.weight"', b'"lm\\u001b[2Jhea"'))
        done = program.choral("generate", strange, "--prompt", "x")
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("\x1b", done.stderr)
        self.run_fails(3, "generate", MODEL, "--input", "/no/such/file", says=["/no/such/file"])
        self.run_fails(3, "generate", MODEL, "--input", os.devnull, "--output", "/no/such/folder/x", says=["--output"])

    # --- files of any name ---

    def test_a_gguf_file_may_have_any_name(self):
        with tempfile.TemporaryDirectory() as folder:
            named, blob = pathlib.Path(folder) / "tiny.gguf", pathlib.Path(folder) / "blobs" / "sha256-6a0746a1ec1aef3e.7"
            blob.parent.mkdir()
            self.run_ok("quantize", MODEL, named, "--scheme", "q8_0", "--format", "gguf", "-q")
            shutil.copy(named, blob)
            for args in (("generate", "-p", "x", "-n", "8", "--seed", "3", "--ignore-eos", "-q"), ("tokenize", "--text", "Hello")):
                self.assertEqual(self.run_ok(args[0], blob, *args[1:]).stdout, self.run_ok(args[0], named, *args[1:]).stdout)
            self.assertIn("sha256-6a0746a1ec1aef3e.7 ready in", self.run_ok("generate", blob, "-p", "x", "-n", "1").stderr)
            self.assertIn("tokenizer", self.run_ok("doctor", blob, "-q").stdout)
            tiny_model.write_adapter(pathlib.Path(folder) / "sql", seed=3)
            lora = tiny_model.write_gguf_adapter(blob.parent / "sha256-adapter", pathlib.Path(folder) / "sql")
            self.run_ok("adapter", "check", lora, "--model", blob)
            self.run_ok("generate", blob, "--lora", f"sql={lora}", "-p", "x", "-n", "1")

    def test_one_file_of_a_folder_leads_to_the_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            lone = pathlib.Path(folder) / "model.safetensors"
            shutil.copy(MODEL / "model.safetensors", lone)
            self.run_fails(3, "generate", lone, "-p", "x", says=["no config.json stands beside it; give a model's whole folder"])
            self.run_ok("generate", MODEL / "model.safetensors", "-p", "x", "-n", "1")  # with its kin beside it
            sql = tiny_model.write_adapter(pathlib.Path(folder) / "sql", seed=3)
            weights = sql / "adapter_model.safetensors"
            self.run_fails(2, "generate", weights, "-p", "x", says=[f"--lora {sql}"])
            self.run_fails(2, "generate", MODEL, "--lora", weights, "-p", "x", says=[f"give its folder, {sql}"])
            self.assertIn(f"give its folder, {sql}", self.run_fails(2, "adapter", "check", weights).stdout)

    # --- settings ---

    def test_config_show_says_what_is_set_and_what_goes_without_saying(self):
        def shown(*args, **env):
            lines = self.run_ok("config", "show", *args, env=env).stdout.splitlines()
            return {line.split()[0]: (line.split("  ", 1)[1].strip().rsplit("  ", 1)[0].strip(), line.rsplit("  ", 1)[1]) for line in lines}

        plain = shown()
        for flag, (value, origin) in plain.items():
            self.assertNotEqual(value, "", f"{flag} is left blank")
            self.assertNotEqual(value, "(hidden)", f"{flag} is not set")
            self.assertEqual(origin, "default")
        for flag, value in [("--api-key", "everybody"), ("--port", "8000"), ("--max-num-seqs", "64"), ("--dtype", "auto"), ("--strict", "off"),
                            ("--kv-cache-dtype", "auto"), ("--quantization", "auto"), ("--model", "none"), ("--lora", "none"),
                            ("--enable-prefix-caching", "on"), ("--admin-api-key", "none"), ("--scheduling-policy", "fcfs")]:
            self.assertEqual(plain[flag][0], value, flag)
        given = shown("--api-key", "a-key-of-some-length", CHORAL_ADMIN_API_KEY="another-key-of-some-length")
        self.assertEqual(given["--api-key"], ("(hidden)", "command line"))
        self.assertEqual(given["--admin-api-key"], ("(hidden)", "CHORAL_ADMIN_API_KEY"))

    def test_defaults_of_each_door_are_those_that_the_page_tells(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        page = (root / "docs/quickstart.md").read_text(encoding="utf-8")
        names = [cell.strip() for cell in re.search(r"^\| \| (C\+\+.*) \|$", page, re.M)[1].split("|")]
        told = dict(zip(names, (cell.strip() for cell in re.search(r"^\| `max_tokens` \| (.*) \|$", page, re.M)[1].split("|"))))
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model.write_model(pathlib.Path(folder) / "long", context=2048)
            sql = tiny_model.write_adapter(pathlib.Path(folder) / "sql", seed=3)
            made = json.loads(self.run_ok("generate", model, "-p", "x", "--ignore-eos", "--json").stdout)
            self.assertEqual(str(len(made["token_ids"])), told["`choral generate`"])
            line = program.choral("generate", model, "--input", "-", stdin='{"prompt": "x", "ignore_eos": true}\n').stdout
            self.assertEqual(str(len(json.loads(line)["token_ids"])), told["a line of `--input`"])
            said = self.run_ok("chat", model, stdin="/set\n").stderr
            self.assertIn(f"max_tokens {told['`choral chat`']}, temperature 1, top_k 0, top_p 1, min_p 0", said)
            both = self.run_ok("adapter", "diff", "base", "sql", "--lora", sql, "--model", model, "-p", "x", "--ignore-eos", "--json").stdout
            self.assertEqual(str(len(json.loads(both)["a"]["token_ids"])), told["`choral adapter diff`"])
            gguf = pathlib.Path(folder) / "long.gguf"
            self.run_ok("quantize", model, gguf, "--scheme", "q8_0", "--format", "gguf", "-q")
            self.assertIn("temperature 0.8, top_k 40, top_p 0.95, min_p 0.05", self.run_ok("chat", gguf, stdin="/set\n").stderr)
        types = (root / "include/choral/types.h").read_text(encoding="utf-8")
        self.assertEqual(re.search(r"int max_tokens = (\d+);", types)[1], told["C++"])

    # --- generate ---

    def test_generate_text(self):
        args = ("generate", MODEL, "--temperature", "0", "-n", "8", "--ignore-eos")
        one = self.run_ok(*args, "--prompt", "Hello")
        self.assertIn("8 generated", one.stderr)
        self.assertEqual(one.stdout, self.run_ok(*args, stdin="Hello").stdout, "stdin is a prompt too")
        self.assertEqual(self.run_ok(*args, "-q", "-p", "Hello").stderr, "")
        both = self.run_ok(*args, "--prompt", "Hello", "--prompt", "[a,b]").stdout
        self.assertIn("[1] Hello\n" + one.stdout, both)
        self.assertIn("[2] [a,b]\n", both)

    def test_ranks_answer_as_one(self):
        args = ("generate", MODEL, "--temperature", "0.9", "--seed", "3", "-n", "12", "--ignore-eos", "--json", "--prompt", "Hello")
        one = json.loads(self.run_ok(*args).stdout)
        for ranks in ("2", "3"):
            told = self.run_ok(*args, "--tensor-parallel-size", ranks)
            self.assertEqual(json.loads(told.stdout)["token_ids"], one["token_ids"])
        self.run_fails(2, *args, "--tensor-parallel-size", "0", says=["--tensor-parallel-size 0", "1 to 64"])

    def test_generate_json_and_chat(self):
        args = ("generate", MODEL, "--temperature", "0", "--max-tokens", "4", "--ignore-eos", "--json", "--prompt", "Hi")
        plain, chat = (json.loads(self.run_ok(*args, *more).stdout) for more in ([], ["--chat", "--system", "Be brief"]))
        self.assertEqual(plain["prompt_token_ids"], list(b"Hi"))
        self.assertEqual(chat["prompt_token_ids"], list(b"<system>Be brief\n<user>Hi\n<assistant>"))
        self.assertEqual(len(plain["token_ids"]), 4)
        self.assertEqual(plain["finish_reason"], "length")

    def test_samplers_of_llama_cpp_have_its_names(self):
        sampling = {"typical_p": 0.9, "top_n_sigma": 2, "xtc_probability": 0.5, "xtc_threshold": 0.01, "repeat_last_n": 8, "dry_multiplier": 0.8,
                    "dry_base": 2, "dry_allowed_length": 1, "dry_penalty_last_n": 30}
        flags = [text for name, value in sampling.items() for text in ("--" + name.replace("_", "-"), str(value))]
        args = ("generate", MODEL, "-n", "20", "--seed", "5", "--temperature", "1", "--repeat-penalty", "1.3", "--json", "--ignore-eos", "-p", "abc")
        told = json.loads(self.run_ok(*args, *flags, "--dry-sequence-breaker", "b").stdout)["token_ids"]
        line = {"prompt": "abc", "max_tokens": 20, "seed": 5, "temperature": 1, "repeat_penalty": 1.3, "ignore_eos": True, "dry_sequence_breakers": ["b"]}
        got, _ = self.run_jsonl([{**line, **sampling}, line, {**line, "logit_bias": [["a", False], ["b", 50]]}])
        self.assertEqual(got[0]["token_ids"], told)
        self.assertNotEqual(got[1]["token_ids"], told)
        self.assertIn("b", got[2]["text"])
        for flag, value in (("--typical-p", "2"), ("--xtc-threshold", "-1"), ("--dry-base", "0"), ("--repeat-last-n", "-2")):
            self.run_fails(2, "generate", MODEL, "-p", "x", flag, value, says=[flag[2:].replace("-", "_"), "must lie between"])

    def test_seed_repeats_whatever_the_neighbours(self):
        args = ("generate", MODEL, "-n", "12", "--seed", "5", "--temperature", "1", "--json", "--ignore-eos")
        alone = json.loads(self.run_ok(*args, "-p", "abc").stdout)
        many = [json.loads(line) for line in self.run_ok(*args, "-p", "x" * 50, "-p", "abc").stdout.splitlines()]
        self.assertEqual(alone["token_ids"], many[1]["token_ids"])
        other = json.loads(self.run_ok("generate", MODEL, "-n", "12", "--seed", "6", "--json", "--ignore-eos", "-p", "abc").stdout)
        self.assertNotEqual(alone["token_ids"], other["token_ids"])

    def test_jsonl(self):
        base = {"temperature": 0, "ignore_eos": True, "max_tokens": 5}
        lines = [{"id": "a", "prompt": "Hello", **base, "logprobs": 3, "prompt_logprobs": 2}, "",
                 {"id": 7, "prompt_token_ids": list(b"Hello"), **base}, {"messages": [{"role": "user", "content": "Hi"}], **base},
                 {"id": "n", "prompt": "Hello", "n": 2, "seed": 1, "ignore_eos": True, "stop_token_ids": None},
                 {"id": "bias", "prompt": "Hello", **base, "logit_bias": {"65": 100}},
                 {"id": "allowed", "prompt": "Hello", **base, "allowed_token_ids": [66], "stop": "BBB"}]
        got, _ = self.run_jsonl(lines)
        self.assertEqual([r["id"] for r in got], ["a", 7, None, "n", "bias", "allowed"])
        a, seven, chat, n, bias, allowed = got
        self.assertEqual(a["token_ids"], seven["token_ids"])
        self.assertEqual(a["prompt_token_ids"], list(b"Hello"))
        self.assertEqual([len(a["logprobs"]), len(a["logprobs"][0]["top"]), len(a["prompt_logprobs"])], [5, 3, 4])
        self.assertEqual(a["logprobs"][0]["top"][0], {k: a["logprobs"][0][k] for k in ("token_id", "logprob")})
        self.assertEqual(bytes(chat["prompt_token_ids"]), b"<user>Hi\n<assistant>")
        self.assertEqual([len(c["token_ids"]) for c in n["completions"]], [16, 16], "16 tokens when nothing is said")
        self.assertNotEqual(n["completions"][0]["token_ids"], n["completions"][1]["token_ids"])
        self.assertEqual(bias["token_ids"], [65] * 5)
        self.assertEqual([allowed["text"], allowed["finish_reason"], allowed["stop_reason"]], ["", "stop", "BBB"])

    def test_jsonl_bad_lines_fail_alone(self):
        good = {"prompt": "Hello", "temperature": 0, "max_tokens": 3, "ignore_eos": True}
        deep = '{"id": "deep", "messages": ' + "[" * 100 + "]" * 100 + "}"
        lines = [good, "{oops", "[1]", {**good, "id": 3, "max_tokens": "5"}, {**good, "temperature": -1}, deep, {"id": "none"},
                 {**good, "id": "lora", "lora": "sql"}, {**good, "prompt": "x" * 300}, {**good, "prompt_token_ids": [1]},
                 {**good, "top_k": 1e3}, {**good, "logit_bias": {"x": 1}}, {**good, "id": "last"}]
        got, said = self.run_jsonl(lines, code=4)
        self.assertEqual(len(got), len(lines))
        self.assertEqual([i for i, r in enumerate(got) if "error" not in r], [0, 12])
        self.assertEqual(got[0]["token_ids"], got[12]["token_ids"])
        for index, code, text in [(1, "corrupt", "not JSON"), (2, "invalid_argument", "array"), (3, "invalid_argument", "'max_tokens'"),
                                  (4, "invalid_argument", "temperature"), (5, "too_large", "nested"), (6, "invalid_argument", "prompt"),
                                  (7, "not_found", "'sql'"), (8, "invalid_argument", "300"), (9, "invalid_argument", "exactly one"),
                                  (10, "invalid_argument", "'top_k'"), (11, "invalid_argument", "logit_bias")]:
            self.assertEqual(got[index]["error"]["code"], code, got[index])
            self.assertIn(text, got[index]["error"]["message"])
            self.assertEqual(got[index]["line"], index + 1)
        self.assertEqual(got[3]["id"], 3)
        self.assertIn("11 of 13 requests failed, the first in line 2", said)

    def test_jsonl_unknown_fields_warn_once(self):
        line = {"prompt": "Hi", "max_tokens": 1, "temprature": 0, "colour": "red"}
        _, said = self.run_jsonl([line] * 3)
        self.assertEqual(said.count("'temprature'"), 1, said)
        self.assertIn("did you mean 'temperature'?", said)
        self.assertEqual(said.count("'colour'"), 1)

    def test_jsonl_unknown_fields_are_errors_where_that_is_asked_for(self):
        good = {"prompt": "Hi", "max_tokens": 1, "mirostat": 0}
        got, said = self.run_jsonl([good, {**good, "temprature": 0}, good], "--strict-fields", code=2)
        self.assertEqual([("error" in answer) for answer in got], [False, True, False], said)
        self.assertIn("'temprature' is not known; did you mean 'temperature'?", got[1]["error"]["message"])
        self.run_fails(2, "generate", MODEL, "-p", "x", "--strict-fields", says=["--strict-fields goes with --input"])

    def test_jsonl_bounds_what_one_line_costs(self):
        many = "{" + "".join(f'"k{i}":1,' for i in range(300_000)) + '"prompt":"hi","max_tokens":1}'
        huge = {"prompt": "a", "n": 128, "logprobs": 100, "max_tokens": 2048}
        model = tiny_model.write_model(pathlib.Path(TEMP.name) / "long", context=2048)
        got, said = super().run_jsonl(model, [many, huge, {**huge, "n": 2, "max_tokens": 3, "ignore_eos": True},
                                              {"prompt": "x", "stop": [5]}, {"prompt": "x", "repetition_penalty": 1e-45}], code=6)
        self.assertEqual(len(got[0]["token_ids"]), 1)
        self.assertEqual(said.count("is not known"), 16)
        self.assertEqual(got[1]["error"]["code"], "too_large")
        for word in ("n 128", "max_tokens 2047", "logprobs 100", "at most"):
            self.assertIn(word, got[1]["error"]["message"])
        self.assertEqual([len(c["logprobs"]) for c in got[2]["completions"]], [3, 3])
        self.assertIn("'stop[0]'", got[3]["error"]["message"])
        self.assertEqual([r["error"]["code"] for r in got[3:]], ["invalid_argument"] * 2)

    def test_jsonl_errors_do_not_pile_up(self):
        """While the input is open: what waits for its turn is bounded by its number and by its bytes."""
        wide = json.dumps({"id": "x" * (40 << 20), "stop": 5})
        for lines in (["[1]"] * 6000, [wide, wide]):
            with subprocess.Popen([program.CHORAL, "generate", MODEL, "--input", "-", "-q"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as p:
                p.stdin.write("".join(line + "\n" for line in lines))
                p.stdin.flush()
                came = select.select([p.stdout], [], [], 120)[0]
                got = p.communicate(timeout=120)[0].splitlines()
            self.assertTrue(came, "nothing is written before the input ends")
            self.assertEqual([json.loads(line)["line"] for line in got], list(range(1, len(lines) + 1)))

    def test_flags_are_defaults_of_lines(self):
        got, _ = self.run_jsonl([{"prompt": "Hi"}, {"prompt": "Hi", "max_tokens": 2}], "--max-tokens", "6", "--ignore-eos")
        self.assertEqual([len(r["token_ids"]) for r in got], [6, 2])

    def test_many_lines_beyond_every_limit_of_the_engine(self):
        lines = [{"id": i, "prompt": f"{i}", "temperature": 0, "max_tokens": 4, "ignore_eos": True} for i in range(40)]
        small = ("--max-num-seqs", "3", "--max-num-batched-tokens", "16", "--kv-cache-memory", "256K", "-t", "2")
        self.assertEqual(self.run_jsonl(lines)[0], self.run_jsonl(lines, *small)[0])

    def wait_for_partial(self, process, target, size):
        """The neighbour of `target` that the lines go to, once it holds so much: an empty one is tried and removed at the start."""
        while process.poll() is None:
            for found in target.parent.glob(target.name + ".partial-*"):
                with contextlib.suppress(FileNotFoundError):
                    if found.stat().st_size >= size:
                        return found
            time.sleep(0.005)
        self.fail("it ended before it could be stopped")

    def test_interrupted_output_does_not_look_complete(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder) / "in.jsonl", pathlib.Path(folder) / "out.jsonl"
            target.write_text("old\n")
            line = json.dumps({"prompt": "x", "max_tokens": 250, "ignore_eos": True, "n": 20})
            source.write_text((line + "\n") * 20000)
            with subprocess.Popen([program.CHORAL, "generate", MODEL, "--input", source, "--output", target], stderr=subprocess.PIPE, text=True) as p:
                self.wait_for_partial(p, target, 1)  # it is in the midst of 8 million tokens
                p.send_signal(signal.SIGINT)
                said = p.communicate(timeout=120)[1]
            self.assertEqual(p.returncode, 9, said)
            self.assertIn("stopped by Ctrl-C", said)
            self.assertEqual(target.read_text(), "old\n")

    def test_a_stopped_run_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder) / "in.jsonl", pathlib.Path(folder) / "out.jsonl"
            lines = [json.dumps({"id": i, "prompt": f"{i}", "max_tokens": 60, "ignore_eos": True, "temperature": 0}) for i in range(600)]
            lines[3] = "{broken"
            source.write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n")
            args = ("generate", MODEL, "--input", source, "--output")
            whole = pathlib.Path(folder) / "whole.jsonl"
            self.run_fails(4, *args, whole)
            with subprocess.Popen([program.CHORAL, *map(str, args), target], stderr=subprocess.PIPE, text=True) as p:
                partial = self.wait_for_partial(p, target, 4000)
                p.send_signal(signal.SIGTERM)
                said = p.communicate(timeout=120)[1]
            self.assertEqual(p.returncode, 9, said)
            self.assertIn("stopped by SIGTERM", said)
            self.assertIn(f"what is answered is in {partial}", said)
            self.assertFalse(target.exists())
            *kept, behind = partial.read_text().split("\n")  # splitlines() cuts answers too, at U+2028 and the like
            self.assertEqual(behind, "")
            self.assertEqual(kept, whole.read_text().split("\n")[:len(kept)])
            with partial.open("a") as file:
                file.write('{"id":cut by a cr')  # as a crash leaves it
            other = pathlib.Path(folder) / "other.jsonl"
            other.write_text(source.read_text().replace('"id": 1,', '"id": "one",'))
            self.run_fails(2, "generate", MODEL, "--input", other, "--output", target, "--resume", says=["line 2 has the id", "another --input"])
            said = self.run_ok(*args, target, "--resume").stderr
            self.assertIn(f"{len(kept)} lines are answered", said)
            self.assertEqual(target.read_text(), whole.read_text())
            self.assertFalse(list(pathlib.Path(folder).glob("*.partial*")))
            self.assertIn("nothing was left beside", self.run_fails(4, *args, target, "--resume").stderr)

    # --- chat, tokenize, doctor, bench ---

    def test_chat_through_a_pipe(self):
        saved = pathlib.Path(TEMP.name) / "chat.json"
        script = ["Hello", "/regen", "/stats", "/set temperature 0.5", "/set temprature 1", f"/save {saved}", "/reset", f"/load {saved}",
                  "two lines \\", "in one", "/nothing", "/quit", "never read"]
        done = self.run_fails(2, "chat", MODEL, "--system", "S", "--max-tokens", "3", "--ignore-eos", "--seed", "3",
                              stdin="\n".join(script) + "\n",
                              says=["tokens/s", "temperature 0.5", "did you mean temperature?", "no command /nothing", "cut after 3 tokens"])
        messages = json.loads(saved.read_text())["messages"]
        self.assertEqual([m["role"] for m in messages], ["system", "user", "assistant"])
        self.assertEqual(messages[1]["content"], "Hello")
        self.assertEqual(done.stderr.count("(cut after"), 3, done.stderr)

    def test_chat_loads_many_keys(self):
        saved = pathlib.Path(TEMP.name) / "keys.json"
        keys = {f"k{i}": 1 for i in range(400_000)}
        saved.write_text(json.dumps({**keys, "messages": [{**keys, "role": "user", "content": "Hello"}]}))
        self.run_fails(2, "chat", MODEL, stdin=f"/load {saved}\n/regen\n", says=["(1 messages loaded", "there is no answer yet"])

    def test_chat_says_when_the_context_is_full(self):
        done = self.run_fails(6, "chat", MODEL, stdin="x" * 300 + "\nHi\n", says=["318 tokens", "256", "nothing was sent"])
        self.assertTrue(done.stdout.strip() or done.stdout, "the conversation goes on")

    def test_a_gguf_file_is_sampled_as_llama_cpp_does(self):
        with tempfile.TemporaryDirectory() as folder:
            copy, file = pathlib.Path(folder) / "tiny", pathlib.Path(folder) / "tiny.gguf"
            tiny_model.write_model(copy)
            settings = lambda model: self.run_ok("chat", model, stdin="/set\n").stderr
            self.run_ok("quantize", copy, file, "--scheme", "q8_0", "--format", "gguf")
            self.assertIn("temperature 0.8, top_k 40, top_p 0.95, min_p 0.05", settings(file))
            self.assertIn("temperature 1, top_k 0, top_p 1, min_p 0", settings(copy))
            (copy / "generation_config.json").write_text(json.dumps({"temperature": 0.3, "top_k": 7}))
            self.run_ok("quantize", copy, file, "--scheme", "q8_0", "--format", "gguf", "--force")
            self.assertIn("temperature 0.3, top_k 7, top_p 0.95, min_p 0.05", settings(file))

    def test_folders_that_are_no_model(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            adapter = tiny_model.write_adapter(folder / "adapter", 1)
            self.run_fails(2, "generate", adapter, "-p", "x", says=["is an adapter", f"--lora {adapter}"])
            (folder / "one").mkdir()
            self.run_ok("quantize", MODEL, folder / "one" / "tiny.gguf", "--scheme", "q8_0", "--format", "gguf")
            self.run_ok("generate", folder / "one", "-p", "x", "--max-tokens", "2")
            whole = (folder / "one" / "tiny.gguf").read_bytes()
            (folder / "one" / "cut.gguf").write_bytes(whole[:1000])
            self.run_fails(2, "generate", folder / "one", "-p", "x", says=["holds 2 GGUF files", "cut.gguf, tiny.gguf"])
            self.run_fails(4, "generate", folder / "one" / "cut.gguf", "-p", "x", says=["cut short"])
            examined = self.run_fails(4, "doctor", folder / "one" / "cut.gguf", "-q")
            self.assertIn("cut short", examined.stdout)
            self.assertNotIn("config.json", examined.stdout)
            for content in b"", b"not one":
                (folder / "other.gguf").write_bytes(content)
                self.run_fails(4, "generate", folder / "other.gguf", "-p", "x", says=["does not begin as a GGUF file does"])

    def test_a_mistyped_name_is_told_the_nearest(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            tiny_model.write_adapter(root / "pirate", 1)
            self.run_fails(3, "generate", f"{MODEL}x", "-p", "x", says=[f"the nearest is '{pathlib.Path(MODEL).name}'"])
            self.run_fails(3, "generate", MODEL, "--lora", root / "pirat", "-p", "x", says=["the nearest is 'pirate'"])
            self.run_fails(3, "generate", MODEL, "--adapter-root", root, "--lora", "pirate", "-p", "x", says=["--adapter pirate"])
            told = self.run_fails(3, "adapter", "check", root / "pirat").stdout
            self.assertIn("no such file or directory", told)
            self.assertIn("the nearest is 'pirate'", told)
            (root / "conf").write_text("prot = 8000\n")
            self.run_fails(2, "serve", MODEL, "--config", root / "conf", says=["did you mean 'port'?"])
        self.run_fails(2, "load", "http://127.0.0.1:9", says=["--url"])

    def test_chat_leaves_out_the_oldest_when_the_context_is_full(self):
        saved = pathlib.Path(TEMP.name) / "full.json"
        args = ("chat", MODEL, "--system", "S", "--max-tokens", "8", "--ignore-eos")
        long = [letter * 50 for letter in "abcd"]
        done = self.run_ok(*args, stdin="\n".join([*long, f"/save {saved}", "/undo", f"/save {saved}.2"]) + "\n")
        self.assertIn("does not read the oldest 2 messages any more", done.stderr)
        self.assertIn("does not read the oldest 4 messages any more", done.stderr)
        asked = lambda file: [m["content"] for m in json.loads(pathlib.Path(file).read_text())["messages"] if m["role"] == "user"]
        self.assertEqual(asked(saved), long, "what is not read is kept")
        self.assertEqual(asked(f"{saved}.2"), long[:3])
        self.run_fails(2, *args, stdin="/undo\n", says=["there is no message yet"])
        reset = self.run_fails(2, *args, "--adapter-root", TEMP.name, stdin="/compare base\n/reset\n\n/retry\n", says=["no answer yet"])
        self.assertNotIn("no message yet", reset.stderr, "a pending comparison ends with the conversation")

    def test_tokenize_round_trip(self):
        text = "Grüße, 世界! 🙂\n\ttab"
        got = json.loads(self.run_ok("tokenize", MODEL, "--json", stdin=text).stdout)
        self.assertEqual(bytes(got["token_ids"]), text.encode())
        plain = self.run_ok("tokenize", MODEL, "--text", "aé ").stdout
        self.assertEqual([line.split(maxsplit=1)[1] for line in plain.splitlines()][-4:], ['"a"', '"<0xC3>"', '"<0xA9>"', '" "'])
        ids = ",".join(map(str, got["token_ids"]))
        self.assertEqual(self.run_ok("tokenize", MODEL, "--ids", ids).stdout, text + "\n")
        self.assertEqual(self.run_ok("tokenize", MODEL, "--ids", "256,65", "--no-special").stdout, "A\n")
        self.run_fails(2, "tokenize", MODEL, "--ids", "1,999", says=["999", "257"])
        self.run_fails(2, "tokenize", MODEL, "--ids", "1,x", says=["'x'"])

    def test_doctor(self):
        report = json.loads(self.run_ok("doctor", MODEL, "--ops", "--json").stdout)
        subjects = {f["subject"]: f for f in report["findings"]}
        for subject in ("CPU", "CPU level", "threads", "memory", "measured", "at most", "architecture", "chat template", "weights"):
            self.assertIn(subject, subjects)
        self.assertEqual(subjects["architecture"]["text"], "LlamaForCausalLM")
        self.assertIn("does not show them", subjects["tools"]["text"])
        self.assertTrue(any("q4_0" in line for line in report["operators"]))
        level = os.environ.get("CHORAL_CPU_LEVEL")
        if level:
            self.assertIn(level, subjects["CPU level"]["text"])
        self.assertIn("✓", self.run_ok("doctor", "-q").stdout)
        self.assertNotIn("models", subjects)  # a model is being looked at
        served = {f["subject"]: f["text"] for f in json.loads(self.run_ok("doctor", "--json").stdout)["findings"]}
        page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"\w+ForCausalLM", served["models"])), set(re.findall(r"`(\w+ForCausalLM)`", page)))
        for form in ("q4_0", "gptq", "w8a8_dynamic"):
            self.assertIn(form, served["forms"])
        self.run_fails(3, "doctor", "/no/such/model", "-q")
        self.run_fails(2, "doctor", says=["choose base, avx2"], env={"CHORAL_CPU_LEVEL": "avx9"})

    def test_numerics_pins_the_level(self):
        def said(code, level, **env):
            return self.run_fails(code, "generate", MODEL, "-p", "x", "-n", "1", "--numerics", level, env=env).stderr
        self.assertIn("at CPU level base", said(0, "base"))
        self.assertIn("at CPU level base", said(0, "base", CHORAL_CPU_LEVEL="avx2"))
        self.assertIn("--numerics: no CPU level is named 'avx9'; choose base, avx2", said(2, "avx9"))
        if not os.environ.get("CHORAL_CPU_LEVEL") and "at CPU level amx" not in self.run_ok("generate", MODEL, "-p", "x", "-n", "1").stderr:
            self.assertIn("pin all machines to a level that each of them has", said(5, "amx"))

    def test_doctor_builds_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "sine"
            tiny_model.write_model(model)
            file = model / "config.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | {"hidden_act": "sine"}))
            says = ["hidden_act", "sine"]
            refused = self.run_fails(5, "generate", model, "-p", "x", "-q", says=says)
            examined = self.run_fails(refused.returncode, "doctor", model, "-q", "--json", says=says)
            wrong = [f for f in json.loads(examined.stdout)["findings"] if f["verdict"] == "wrong"]
            self.assertEqual([f["subject"] for f in wrong], ["configuration"])
            self.assertIn("sine", wrong[0]["text"])

    def test_bench(self):
        path = pathlib.Path(TEMP.name) / "bench.html"
        report = json.loads(self.run_ok("bench", MODEL, "--quick", "--adapters", "2", "--ranks", "4", "--json", "--html", path).stdout)
        self.assertEqual([(r["phase"], r["batch"], r["tokens"]) for r in report["results"]],
                         [("decode", 1, 1), ("decode", 8, 8), ("prefill", 1, 128)])
        for result in report["results"]:
            self.assertGreater(result["tokens_per_s"], 0)
            self.assertIn("matmul", [op["name"] for op in result["operators"]])
            self.assertGreater(result["products"]["of_fma_peak"], 0)
        self.assertGreater(report["peaks_after"]["read_gbps"], 0)
        page = program.Page(path)
        rows = {row["case"]: row for _, table in page.tables() for row in table if "case" in row}
        for result in report["results"]:
            row = rows[f"{result['phase']} {result['batch'] if result['phase'] == 'decode' else result['tokens']}"]
            self.assertEqual([row["tokens/s"], row["ms/step"], row["% of read"], row["% of FMA"]],
                             [f"{result['tokens_per_s']:.1f}", f"{result['median_ms']:.2f}", f"{100 * result['of_read_bandwidth']:.0f} %",
                              f"{100 * result['of_fma_peak']:.0f} %"])
        for result in report["adapters"]["results"]:
            self.assertEqual(rows[result["case"]]["of base"], f"{100 * result['of_base']:.1f} %")
        for words in (report["cpu"], f"level {report['cpu_level']}", "paged_attention", "first token"):
            self.assertIn(words, " ".join(page.root.itertext()))
        text = self.run_ok("bench", MODEL, "--batch", "1,2", "--prefill", "16", "--steps", "2", "--ops").stdout
        for part in ("% of read", "% of FMA", "\npaged_attention ", "products, of read"):
            self.assertIn(part, text)
        short = json.loads(self.run_ok("bench", MODEL, "--max-model-len", "100", "--batch", "1", "--steps", "2", "--json").stdout)
        self.assertEqual([row["tokens"] for row in short["results"] if row["phase"] == "prefill"], [99])
        self.run_fails(2, "bench", MODEL, "--html", "-", says=["standard output has the report"])
        self.run_fails(2, "bench", says=["--synthetic"])
        self.run_fails(2, "bench", "--synthetic", "9000b", says=["9000b", "135m"])
        self.run_fails(2, "bench", MODEL, "--batch", "0", says=["--batch 0"])


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    tiny_model.write_model(MODEL)
    unittest.main()
