#!/usr/bin/env python3
"""Adapters through the program `choral`: adapters_test.py CHORAL [unittest arguments]. Makes its own model and adapters; the six of
examples/adapters are tried too when CHORAL_DEMO_MODEL names their base."""

import json
import math
import os
import pathlib
import re
import shutil
import struct
import sys
import tempfile
import unittest

import program
import tiny_model

TEMP = tempfile.TemporaryDirectory()
ROOT = pathlib.Path(TEMP.name)
MODEL, ADAPTERS, OTHER = ROOT / "tiny", ROOT / "adapters", ROOT / "elsewhere/loud"
DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/adapters"
GREEDY = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
FLAGS = ("--temperature", "0", "--max-tokens", "8", "--ignore-eos")


def make_files():
    tiny_model.write_model(MODEL)
    tiny_model.write_adapter(ADAPTERS / "calm", seed=1)
    tiny_model.write_adapter(ADAPTERS / "swift", seed=2, rank=8, use_rslora=True)
    tiny_model.write_adapter(ADAPTERS / "team/quiet", seed=3, rank=2, modules=("o_proj",))
    tiny_model.write_adapter(OTHER, seed=4)
    (ADAPTERS / "README.md").write_text("no adapter")
    (ADAPTERS / "empty").mkdir()


class AdaptersTest(program.ProgramTest):
    def answers(self, lines, *flags, code=0):
        return self.run_jsonl(MODEL, lines, *flags, code=code)

    def ids(self, lora, *flags):
        line = {"prompt": "Hello", **GREEDY} | ({} if lora is None else {"lora": lora})
        return self.answers([line], *flags)[0][0]["token_ids"]

    # --- flags ---

    def test_help_has_a_group_for_adapters(self):
        for command in (["generate"], ["chat"], ["adapter", "diff"]):
            text = self.run_ok(*command, "--help").stdout
            self.assertIn("Adapters:", text)
            for flag in ("--lora ", "--lora-modules", "--adapter-root", "--lora-dtype", "--max-lora-rank", "--lora-extra-vocab-size", "--max-loras", "--max-cpu-loras",
                         "--adapter-memory"):
                self.assertIn(flag, text, command)
        self.assertIn("--compare", self.run_ok("generate", "--help").stdout)

    def test_every_spelling_of_a_place_means_the_same(self):
        wanted = self.ids("loud", "--lora", f"loud={OTHER}")
        self.assertNotEqual(wanted, self.ids(None))
        as_json = json.dumps({"name": "loud", "path": str(OTHER), "base_model_name": None})
        for flags in (("--lora", OTHER), ("--lora", f"{OTHER}/"), ("--lora-modules", f"loud={OTHER}", f"calm={ADAPTERS / 'calm'}"),
                      ("--lora-modules", as_json), ("--lora", as_json), ("--adapter-root", OTHER.parent)):
            self.assertEqual(self.ids("loud", *flags), wanted, flags)
        for name in ("x", "org/x", "team/a b/x", "a:b+c"):
            for flag in ("--lora", "--lora-modules"):
                self.assertEqual(self.ids(name, flag, f"{name}={OTHER}"), wanted, "a name is no part of an adapter")
        odd = ROOT / "runs/lr=1e-4/loud"
        odd.parent.mkdir(parents=True)
        odd.symlink_to(OTHER)
        self.assertEqual(self.ids("loud", "--lora", odd), wanted, "a path that begins with / has no name before its =")
        self.assertEqual(self.ids("x", "--lora", f"x={odd}"), wanted)
        relative = odd.relative_to(ROOT)
        self.run_fails(3, "generate", MODEL, "-p", "x", "--lora", relative, says=["adapter 'runs/lr' has no 1e-4/loud", "write ./runs/lr=1e-4/loud"], cwd=ROOT)

    def test_bad_places(self):
        args = ("generate", MODEL, "-p", "x", "--lora")
        self.run_fails(3, *args, "gone=/no/such/adapter", says=["gone", "/no/such/adapter"])
        self.run_fails(3, *args, f"bare={ADAPTERS / 'empty'}", says=["bare", "adapter_config.json"])
        self.run_fails(2, *args, "x=", says=["--lora", "NAME=PATH"])
        self.run_fails(2, *args, f"=/{OTHER}", says=["--lora", "NAME=PATH"])
        self.run_fails(2, *args, f"base={OTHER}", says=["'base'", "without adapters"])
        self.run_fails(2, *args, f"a={OTHER}", "--lora", f"a={ADAPTERS / 'calm'}", says=["'a' is given twice", str(OTHER)])
        self.run_fails(2, *args, '{"name": "a"}', says=["--lora", "path"])
        self.run_fails(2, *args, '{"name": "a", "path": "b", "rank": "4"}', says=["'rank'"])
        self.run_fails(2, *args, "{oops", says=["JSON"])
        self.run_fails(3, "generate", MODEL, "-p", "x", "--adapter-root", "/no/such/folder", says=["--adapter-root", "/no/such/folder"])
        self.run_fails(2, "generate", MODEL, "-p", "x", "--adapter-memory", "much", says=["--adapter-memory", "'much'"])
        self.run_fails(2, "generate", MODEL, "-p", "x", "--lora-dtype", "int3", says=["int3", "int8"])
        self.run_fails(6, *args, f"a={ADAPTERS / 'swift'}", "--max-lora-rank", "4", says=["rank 8", "--max-lora-rank 8"])

    # --- generate ---

    def test_jsonl_mixes_adapters_in_a_batch_as_if_each_were_alone(self):
        loras = [None, "calm", "swift", "team/quiet", [{"name": "calm", "scale": 0.5}, "swift"], ["calm"], [{"name": "swift", "scale": 1}],
                 "base", [], [{"name": "calm", "scale": 0}]]
        lines = [{"id": i, "prompt": "Hello", "lora": lora, **GREEDY} for i, lora in enumerate(loras)]
        lines.append({"id": "absent", "prompt": "Hello", **GREEDY})
        got, _ = self.answers(lines, "--adapter-root", ADAPTERS)
        self.assertEqual([r["id"] for r in got], [*range(len(loras)), "absent"])
        self.assertEqual([r["lora"] for r in got[:-1]], loras, "the field comes back as it was")
        self.assertNotIn("lora", got[-1])
        ids = [r["token_ids"] for r in got]
        base = self.ids(None)
        self.assertEqual([ids[i] for i in (0, 7, 8, 9, 10)], [base] * 5)
        self.assertEqual([ids[5], ids[6]], [ids[1], ids[2]])
        self.assertEqual(len({tuple(ids[i]) for i in (0, 1, 2, 3, 4)}), 5, "each voice is another one")
        for i in (1, 2, 3, 4):
            self.assertEqual(ids[i], self.ids(loras[i], "--adapter-root", ADAPTERS), loras[i])
        on_ranks, _ = self.answers(lines, "--adapter-root", ADAPTERS, "--tensor-parallel-size", "2", "--fully-sharded-loras")
        self.assertEqual([r["token_ids"] for r in on_ranks], ids)

    def test_jsonl_errors_name_line_and_field(self):
        good = {"prompt": "Hello", "lora": "calm", **GREEDY}
        cases = [({"lora": 7}, "invalid_argument", "'lora'"), ({"lora": {"name": "calm"}}, "invalid_argument", "'lora'"),
                 ({"lora": [1]}, "invalid_argument", "'lora[0]'"), ({"lora": [{"scale": 1}]}, "invalid_argument", "no name"),
                 ({"lora": ["calm", {"name": "swift", "scale": "much"}]}, "invalid_argument", "'lora[1].scale'"),
                 ({"lora": [{"name": "calm", "weight": 1}]}, "invalid_argument", "'weight'"),
                 ({"lora": ["base", "calm"]}, "invalid_argument", "'base'"), ({"lora": "calmm"}, "not_found", "did you mean 'calm'?"),
                 ({"lora": ""}, "", ""), ({"lora": "../elsewhere/loud"}, "invalid_argument", "loud"), ({"lora": str(OTHER)}, "invalid_argument", "not by a path"),
                 ({"lora": "calm\0nonsense"}, "invalid_argument", "control character"), ({"lora": "team///quiet"}, "invalid_argument", "write 'team/quiet'"),
                 ({"lora": "x" * 257}, "invalid_argument", "257 bytes")]
        lines = [good, *({**good, **change} for change, _, _ in cases), good]
        got, said = self.answers(lines, "--lora", f"calm={ADAPTERS / 'calm'}", "--adapter-root", ADAPTERS, code=2)
        self.assertEqual(got[0]["token_ids"], got[-1]["token_ids"])
        for record, (change, code, text), number in zip(got[1:], cases, range(2, 99)):
            self.assertIn("error", record, change)
            self.assertEqual(record.get("lora"), change["lora"], "what was asked for is in the answer")
            if code:
                self.assertEqual(record["error"]["code"], code, record)
            self.assertIn(text, record["error"]["message"])
            self.assertEqual(record.get("line", number), number)
        self.assertIn(f"{len(cases)} of {len(lines)} requests failed, the first in line 2", said)

    def test_adapter_flag(self):
        args = ("generate", MODEL, *FLAGS, "--adapter-root", ADAPTERS, "--json", "-p", "Hello")
        record = json.loads(self.run_ok(*args, "--adapter", "calm").stdout)
        self.assertEqual([record["lora"], record["token_ids"]], ["calm", self.ids("calm", "--adapter-root", ADAPTERS)])
        mixed = json.loads(self.run_ok(*args, "--adapter", "calm:0.5", "--adapter", "swift").stdout)
        self.assertEqual(mixed["lora"], [{"name": "calm", "scale": 0.5}, {"name": "swift", "scale": 1}])
        self.assertEqual(mixed["token_ids"], self.ids(mixed["lora"], "--adapter-root", ADAPTERS))
        self.assertEqual(json.loads(self.run_ok(*args, "--adapter", "calm:0.5+swift").stdout)["token_ids"], mixed["token_ids"])
        self.assertNotIn("lora", json.loads(self.run_ok(*args, "--adapter", "base").stdout))
        self.run_fails(3, *args, "--adapter", "swiftt", says=["'swiftt'", "did you mean 'swift'?", "team/quiet"])
        self.run_fails(3, "generate", MODEL, "-p", "x", "--adapter", "calm", says=["--lora NAME=PATH"])
        self.run_fails(2, *args, "--adapter", "calm", "--adapter", "base", says=["base"])
        self.run_fails(2, *args, "--adapter", "calm:inf", says=["finite"])
        self.run_fails(2, "generate", MODEL, "--input", os.devnull, "--adapter", "calm", says=["`lora`"])

    def test_the_only_lora_answers(self):
        args, one = ("generate", MODEL, *FLAGS, "-p", "Hello", "--json"), ("--lora", f"calm={ADAPTERS / 'calm'}")
        calm = self.ids("calm", *one)
        alone = self.run_ok(*args, *one)
        self.assertEqual([json.loads(alone.stdout)[key] for key in ("lora", "token_ids")], ["calm", calm])
        self.assertNotIn("not used", alone.stderr)
        self.assertEqual(json.loads(self.run_ok(*args, *one, "--adapter", "base").stdout)["token_ids"], self.ids(None))
        for more in (("--lora", f"swift={ADAPTERS / 'swift'}"), ("--lora-modules", f"swift={ADAPTERS / 'swift'}")):
            two = self.run_ok(*args, *one, *more)
            self.assertEqual(json.loads(two.stdout)["token_ids"], self.ids(None))
            self.assertIn("loaded, not used: calm, swift (--adapter NAME, or --compare, chooses)", two.stderr)
            self.assertNotIn("not used", self.run_ok(*args, *one, *more, "--adapter", "swift").stderr)
        silent, null, base = ({"prompt": "Hello", **GREEDY, **lora} for lora in ({}, {"lora": None}, {"lora": "base"}))
        self.assertEqual([r["token_ids"] for r in self.answers([silent, null], *one)[0]], [calm, calm])
        for named in (base, silent | {"lora": "calm"}):
            got, said = self.answers([silent, null, named], *one)
            self.assertEqual([r["token_ids"] for r in got], [self.ids(None)] * 2 + [calm if named["lora"] == "calm" else self.ids(None)])
            self.assertIn("lines choose by their own `lora`; the others are the base's, not calm's", said)
        piped = self.run_ok("generate", MODEL, *FLAGS, *one, "--input", "-", stdin=json.dumps(silent) + "\n" + json.dumps(base) + "\n")
        self.assertEqual([row["token_ids"] for row in program.json_lines(piped.stdout)], [calm, self.ids(None)])
        self.assertIn("loaded, not used", self.answers([silent], *one, "--lora", OTHER)[1])
        chat = ("chat", MODEL, *FLAGS, *one)
        self.assertIn("(calm answers)", self.run_ok(*chat, stdin="Hello\n").stderr)
        self.assertIn("loaded, not used: calm, loud", self.run_ok(*chat, "--lora", OTHER, stdin="Hello\n").stderr)

    def test_adapters_of_the_hubs_cache(self):
        hub = ROOT / "hub"
        snapshot = hub / "models--someone--calm-lora/snapshots/abc123"
        shutil.copytree(ADAPTERS / "calm", snapshot)
        (hub / "models--someone--calm-lora/refs").mkdir()
        (hub / "models--someone--calm-lora/refs/main").write_text("abc123")
        args = ("generate", MODEL, *FLAGS, "-p", "Hello", "--json", "--lora")
        cache = {"HF_HUB_CACHE": str(hub)}
        self.assertEqual(json.loads(self.run_ok(*args, "someone/calm-lora", env=cache).stdout)["token_ids"],
                         self.ids("calm", "--adapter-root", ADAPTERS))
        self.run_fails(3, *args, "someone/calm-loro", says=["no adapter 'someone/calm-loro'", "someone/calm-lora"], env=cache)
        model = hub / "models--someone--Tiny"
        (model / "refs").mkdir(parents=True)
        (model / "refs/main").write_text("0123abcd")
        shutil.copytree(MODEL, model / "snapshots/0123abcd")
        said = self.run_ok("generate", "someone/Tiny", *FLAGS, "-p", "Hello", env=cache).stderr
        self.assertIn("someone/Tiny ready", said)
        self.assertNotIn("0123abcd", said)

    def test_compare(self):
        args = ("generate", MODEL, *FLAGS, "--adapter-root", ADAPTERS, "-p", "Hello", "-p", "Bye")
        records = program.json_lines(self.run_ok(*args, "--json", "--compare", "base,calm,calm:0.5+swift").stdout)
        self.assertEqual([(r["id"], r.get("lora")) for r in records[:3]],
                         [(0, None), (0, "calm"), (0, [{"name": "calm", "scale": 0.5}, {"name": "swift", "scale": 1}])])
        self.assertEqual([r["id"] for r in records], [0, 0, 0, 1, 1, 1])
        self.assertEqual(records[0]["token_ids"], self.ids(None))
        self.assertEqual(records[1]["token_ids"], self.ids("calm", "--adapter-root", ADAPTERS))
        piped = self.run_ok(*args, "--compare", "base,calm").stdout
        for text in ("[1] Hello\nbase  ", "\ncalm  ", "\n\n[2] Bye\n"):
            self.assertIn(text, piped)
        self.assertIn("4 answers in one batch", self.run_ok(*args, "--compare", "base,calm").stderr)
        self.run_fails(3, *args, "--compare", "base,calmm", says=["'calmm'", "did you mean 'calm'?"])
        self.run_fails(2, *args, "--compare", "base,base", says=["twice"])
        self.run_fails(2, *args, "--compare", "base,", says=["name is missing"])
        self.run_fails(2, *args, "--compare", "base", "--adapter", "calm", says=["--compare"])
        self.run_fails(2, *args, "--compare", "base", "--n", "2", says=["--n 2"])

    def test_layout_follows_the_width(self):
        args = ("generate", MODEL, "--temperature", "0", "--max-tokens", "60", "--adapter-root", ADAPTERS, "-p", "Hello", "--compare", "base,calm")
        for width in (200, 90, 60, 30):
            lines = self.run_ok(*args, env={"COLUMNS": str(width)}).stdout.splitlines()
            self.assertEqual(" │ " in lines[0], width >= 90, lines)
            self.assertEqual(lines[0].startswith("──"), width == 30, lines)
            self.assertLessEqual(max(map(len, lines)), width, lines)

    # --- choral adapter ---

    def test_adapter_words(self):
        text = self.run_ok("adapter", "--help").stdout
        for word in ("check", "list", "diff"):
            self.assertIn(word, text)
        self.assertIn("list", self.run_fails(2, "adapter").stderr)
        self.run_fails(2, "adapter", "chek", "x", says=["choral adapter has no command 'chek'", "did you mean check?"])
        self.run_fails(2, "adapter", "list", "--adapter-rot", "x", says=["choral adapter list has no flag", "did you mean --adapter-root?"])
        self.run_fails(2, "adapter", "list", says=["--adapter-root"])
        self.run_fails(2, "adapter", "check")

    def test_check(self):
        text = self.run_ok("adapter", "check", ADAPTERS / "swift").stdout
        for word in ("✓", "rsLoRA", "rank       8", "6 modules", "someone/Tiny", "lora_dropout"):
            self.assertIn(word, text)
        report = json.loads(self.run_ok("adapter", "check", ADAPTERS / "calm", "--model", MODEL, "--json").stdout)
        self.assertEqual([report["usable"], report["ranks"], report["scale"], report["modules"]], [True, {"4": 6}, [2, 2], 6])
        self.assertEqual([report["base_match"], report["zero_effect"], report["problems"]], ["same", False, []])
        self.assertEqual(len(report["digest"]), 64)
        zero = tiny_model.write_adapter(ROOT / "zero", seed=5, zero=True)
        self.assertIn("no effect", self.run_ok("adapter", "check", zero).stdout)

    def test_gguf_adapters(self):
        gguf = tiny_model.write_gguf_adapter(ROOT / "calm.gguf", ADAPTERS / "calm")
        self.assertEqual(self.ids("calm", "--lora", gguf), self.ids("calm", "--adapter-root", ADAPTERS))
        text = self.run_ok("adapter", "check", gguf).stdout
        for word in ("✓", "LoRA", "rank       4", "scale      2", "6 modules", "12 tensors (gguf)", "not named, of the architecture llama"):
            self.assertIn(word, text)
        report, peft = (json.loads(self.run_ok("adapter", "check", path, "--model", MODEL, "--json").stdout) for path in (gguf, ADAPTERS / "calm"))
        self.assertEqual([report["usable"], report["format"], report["modules"]], [True, "gguf", 6])
        self.assertEqual([report["base_architecture"], report["base_model"]], ["llama", ""])
        self.assertEqual(report["digest"], peft["digest"], "the same adapter in another container")
        config = json.loads((MODEL / "config.json").read_text())
        wide = tiny_model.write_model(ROOT / "wide heads")
        (wide / "config.json").write_text(json.dumps(config | {"head_dim": 24}))
        refused = self.run_fails(2, "adapter", "check", gguf, "--model", wide).stdout
        for says in ("heads of 24", "q_proj"):
            self.assertIn(says, refused)
        model = ROOT / "base.gguf"
        model.write_bytes(gguf.read_bytes().replace(struct.pack("<Q", 7) + b"adapter", struct.pack("<Q", 7) + b"amodel!"))
        self.assertIn("general.type", self.run_fails(2, "adapter", "check", model).stdout)

    # Its heads are wider than hidden_size / num_attention_heads.
    def test_check_knows_a_models_head_dim(self):
        adapter, model = DATA / "lora/tiny-qwen3-lora-all", DATA / "models/tiny-qwen3"
        report = json.loads(self.run_ok("adapter", "check", adapter, "--model", model, "--json").stdout)
        self.assertEqual([report["usable"], report["modules"], len(report["digest"])], [True, 28, 64])
        config = json.loads((model / "config.json").read_text())
        self.assertNotEqual(config["head_dim"], config["hidden_size"] // config["num_attention_heads"])
        narrow = ROOT / "narrow heads"
        shutil.copytree(model, narrow)
        (narrow / "config.json").write_text(json.dumps(config | {"head_dim": None}))
        done = self.run_fails(2, "adapter", "check", adapter, "--model", narrow, "--json")
        problems = "\n".join(json.loads(done.stdout)["problems"])
        for projection in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.assertIn(projection, problems)
        self.assertNotIn("mlp", problems)

    # What a person has who asks before a download.
    def test_check_against_a_config_alone(self):
        adapter, model = DATA / "lora/tiny-qwen3-lora-all", DATA / "models/tiny-qwen3"
        bare = ROOT / "config alone" / model.name
        bare.mkdir(parents=True)
        config = json.loads((model / "config.json").read_text())
        (bare / "config.json").write_text(json.dumps(config))
        whole, alone = (json.loads(self.run_ok("adapter", "check", adapter, "--model", m, "--json").stdout) for m in (model, bare))
        self.assertEqual(alone, whole)
        self.assertEqual(sum(alone["reached"].values()), alone["modules"])
        text = self.run_ok("adapter", "check", adapter, "--model", bare).stdout
        for says in (f"{config['num_hidden_layers']} q_proj", "config.json alone"):
            self.assertIn(says, text)
        self.assertNotIn("config.json alone", self.run_ok("adapter", "check", adapter, "--model", model).stdout)
        (bare / "config.json").write_text(json.dumps(config | {"intermediate_size": 2 * config["intermediate_size"]}))
        refused = self.run_fails(2, "adapter", "check", adapter, "--model", bare, "--json")
        self.assertIn("gate_proj", "\n".join(json.loads(refused.stdout)["problems"]))

    def test_check_refuses_what_the_engine_refuses_with_its_code(self):
        bad = {
            "nan": tiny_model.write_adapter(ROOT / "bad/nan", seed=6, break_at="1.mlp.down_proj.lora_B.weight"),
            "pissa": tiny_model.write_adapter(ROOT / "bad/pissa", seed=6, init_lora_weights="pissa"),
            "rank": tiny_model.write_adapter(ROOT / "bad/rank", seed=6, r=16),
            "kind": tiny_model.write_adapter(ROOT / "bad/kind", seed=6, peft_type="LOHA"),
            "short": tiny_model.write_adapter(ROOT / "bad/short", seed=6),
            "no-json": tiny_model.write_adapter(ROOT / "bad/no-json", seed=6),
            "gone": ROOT / "bad/gone",
        }
        weights = bad["short"] / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        (bad["no-json"] / "adapter_config.json").write_text("{")
        for name, folder in bad.items():
            code = program.choral("generate", MODEL, "-p", "x", "--lora", folder).returncode
            self.assertNotEqual(code, 0, name)
            done = self.run_fails(code, "adapter", "check", folder, "--model", MODEL)
            self.assertIn("✗", done.stdout)
            self.assertIn("refused", done.stdout)
            self.assertEqual(program.choral("adapter", "check", folder).returncode, code, name)
        self.assertIn("NaN", program.choral("adapter", "check", bad["nan"]).stdout)
        self.assertIn("path_initial_model_for_weight_conversion", program.choral("adapter", "check", bad["pissa"]).stdout)
        # Fits no model of another shape, though the files are sound.
        other = tiny_model.write_adapter(ROOT / "bad/wide", seed=6, modules=("q_proj",))
        config = json.loads((MODEL / "config.json").read_text())
        half = tiny_model.write_model(ROOT / "half")
        (half / "config.json").write_text(json.dumps(config | {"num_attention_heads": 2}))
        self.run_ok("adapter", "check", other, "--model", MODEL)
        self.assertIn("q_proj", self.run_fails(2, "adapter", "check", other, "--model", half).stdout)
        done = self.run_fails(4, "adapter", "check", ADAPTERS / "calm", bad["nan"], "--json", says=["1 of 2 adapters"])
        self.assertEqual([row["usable"] for row in program.json_lines(done.stdout)], [True, False])
        self.run_fails(6, "adapter", "check", ADAPTERS / "swift", "--max-lora-rank", "4")
        self.run_fails(3, "adapter", "check", other, "--model", "/no/such/model", says=["/no/such/model"])

    def test_check_of_an_adapter_for_another_model(self):
        other = tiny_model.write_adapter(ROOT / "bad/foreign", seed=6, base_model_name_or_path="someone/Llama-3-8B")
        done = self.run_ok("adapter", "check", other, "--model", MODEL)
        self.assertRegex(done.stdout, r"(?m)^! .*foreign$")
        self.assertRegex(done.stdout, r"(?m)^  doubtful +it was made for another model than tiny")
        self.assertRegex(self.run_ok("adapter", "check", OTHER, "--model", MODEL).stdout, r"(?m)^✓ ")
        self.assertRegex(self.run_fails(2, "adapter", "check", other, "--model", MODEL, "--strict").stdout, r"(?m)^✗ ")

    def test_check_says_what_is_wrong_once(self):
        broken = tiny_model.write_adapter(ROOT / "bad/once", seed=6, r=8)
        for more in ((), ("--json",)):
            done = self.run_fails(2, "adapter", "check", broken, *more, says=["the adapter is refused"])
            self.assertEqual((done.stdout + done.stderr).count("layers.0.self_attn.q_proj"), done.stdout.count("layers.0.self_attn.q_proj"))
            self.assertGreater(done.stdout.count("q_proj"), 0)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_list_with_a_model_shows_what_does_not_fit(self):
        root = ROOT / "misfits"
        tiny_model.write_adapter(root / "fine", seed=7)
        tiny_model.write_adapter(root / "foreign", seed=7, base_model_name_or_path="someone/Llama-3-8B")
        tiny_model.write_adapter(root / "wide", seed=7)
        config = json.loads((MODEL / "config.json").read_text())
        half = tiny_model.write_model(ROOT / "half-list")
        (half / "config.json").write_text(json.dumps(config | {"num_attention_heads": 2}))
        text = self.run_ok("adapter", "list", "--adapter-root", root, "--model", MODEL).stdout
        self.assertRegex(text, r"(?m)^fine +LoRA .* someone/Tiny ")
        self.assertRegex(text, r"(?m)^foreign +LoRA .* ! someone/Llama-3-8B \(another model\) ")
        self.assertNotIn("✗", text)
        text = self.run_ok("adapter", "list", "--adapter-root", root, "--model", half).stdout
        self.assertEqual(len(re.findall(r"(?m)^\w+ +✗ does not fit half-list: .*q_proj", text)), 3)
        self.assertTrue(all(len(line) < 400 for line in text.splitlines()), text)
        rows = program.json_lines(self.run_ok("adapter", "list", "--adapter-root", root, "--model", half, "--json").stdout)
        self.assertEqual({row["error"]["code"] for row in rows}, {"invalid_argument"})

    def test_list(self):
        tiny_model.write_adapter(ROOT / "list/fine", seed=7)
        (ROOT / "list/odd").mkdir()
        (ROOT / "list/odd/adapter_config.json").write_text("{")
        text = self.run_ok("adapter", "list", "--adapter-root", ROOT / "list", "--lora", f"x={OTHER}").stdout
        self.assertRegex(text, r"(?m)^NAME +KIND +RANK +SIZE +BASE +PATH\nx +LoRA +4 +[\d.]+ KiB +someone/Tiny +.*/loud$")
        self.assertRegex(text, r"(?m)^odd +✗ .*JSON")
        rows = program.json_lines(self.run_ok("adapter", "list", "--adapter-root", ADAPTERS, "--json").stdout)
        self.assertEqual([r["name"] for r in rows], ["calm", "swift", "team/quiet"])
        self.assertEqual([(r["kind"], r["rank"]) for r in rows], [("LoRA", 4), ("LoRA, rsLoRA", 8), ("LoRA", 2)])
        self.run_fails(3, "adapter", "list", "--adapter-root", "/no/such/folder", says=["/no/such/folder"])

    def test_names_that_no_request_can_use(self):
        root = ROOT / "unusable"
        for name in ("base", "tab\tin", "good"):
            tiny_model.write_adapter(root / name, seed=8)
        (root / "linked").symlink_to(OTHER)
        (root / "again").symlink_to("good")
        rows = {row["name"]: row for row in program.json_lines(self.run_ok("adapter", "list", "--adapter-root", root, "--json").stdout)}
        self.assertEqual([name for name, row in rows.items() if "error" not in row], ["again", "good"])
        for name, says in (("base", "the model without adapters"), ("tab\tin", "control character"), ("linked", "leads out of")):
            self.assertIn("not offered: ", rows[name]["error"]["message"])
            self.assertIn(says, rows[name]["error"]["message"])
        args = ("generate", MODEL, *FLAGS, "--adapter-root", root, "-p", "Hello")
        done = self.run_fails(3, *args, "--adapter", "linked", says=["'linked' leads out of", str(OTHER), "--lora NAME=PATH"])
        self.assertNotIn("did you mean", done.stderr)
        plain = self.run_ok("generate", MODEL, *FLAGS, "-p", "Hello").stdout
        self.assertEqual(self.run_ok(*args, "--adapter", "base").stdout, plain)
        self.run_fails(2, "generate", MODEL, "--lora", root / "base", "-p", "x", says=["without adapters"])

    def test_a_root_of_more_folders_than_are_listed(self):
        root = ROOT / "many"
        tiny_model.write_adapter(root / "good", seed=8)
        for i in range(101):  # 101 times 101
            (root / "team" / f"{i}").mkdir(parents=True)
            (root / "team" / f"{i}" / "adapter_config.json").touch()
            (root / f"team{i}").symlink_to("team")
        (root / "linked").symlink_to(OTHER)
        want = self.run_ok("generate", MODEL, *FLAGS, "--lora", root / "good", "--adapter", "good", "-p", "Hello").stdout
        args = ("generate", MODEL, *FLAGS, "--adapter-root", root, "-p", "Hello", "--adapter")
        self.assertEqual(self.run_ok(*args, "good").stdout, want)
        self.run_fails(3, *args, "linked", says=["'linked' leads out of", str(OTHER)])
        self.run_fails(3, *args, "gone", says=["'gone'", "has no such folder", str(root)])

    def test_diff(self):
        args = ("adapter", "diff", "base", "calm", "--model", MODEL, "--adapter-root", ADAPTERS, "--max-tokens", "8", "--ignore-eos", "-p", "Hello")
        record = json.loads(self.run_ok(*args, "--json").stdout)
        a, b = record["a"]["token_ids"], record["b"]["token_ids"]
        self.assertEqual([a, b], [self.ids(None), self.ids("calm", "--adapter-root", ADAPTERS)])
        first = next(i for i, (x, y) in enumerate(zip(a, b)) if x != y)
        difference = record["first_difference"]
        self.assertEqual([difference["token"], difference["a"]["token_id"], difference["b"]["token_id"]], [first, a[first], b[first]])
        self.assertTrue(0 < difference["a"]["probability"] <= 1)
        text = self.run_ok(*args).stdout
        self.assertEqual(text.count("▶"), 2)
        self.assertIn(f"They part after {first} tokens", text)
        same = self.run_ok(*(("adapter", "diff", "calm", "calm:1") + args[4:]))
        self.assertIn("The same 8 tokens", same.stdout)
        self.run_fails(3, *(("adapter", "diff", "base", "calmm") + args[4:]), says=["did you mean 'calm'?"])
        self.run_fails(2, "adapter", "diff", "base", "calm", "--model", MODEL, says=["--prompt"])

    def test_diff_as_a_page(self):
        path, hostile = ROOT / "diff.html", "<script>alert('x')</script>\x1b[2J & \u202e"
        args = ("adapter", "diff", "calm", "swift+calm:0.5", "--model", MODEL, "--adapter-root", ADAPTERS, "--max-tokens", "8", "--ignore-eos",
                "-p", hostile, "-p", "Hello", "--html", path, "--json")
        records = program.json_lines(self.run_ok(*args).stdout)
        page = program.Page(path)
        prompts = [record["prompt"].replace("\x1b", "\ufffd") for record in records]
        self.assertEqual([words for words in page.words("p") if words in prompts], prompts)
        answers = [element for element in page.root.iter("div") if element.get("class") == "answer"]
        for i, record in enumerate(records):
            pair = answers[2 * i:2 * i + 2]
            for key, element in zip("ab", pair):
                shown = "".join(element.itertext())
                self.assertEqual(shown, re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "\ufffd", record[key]["text"]))
                self.assertIsNotNone(element.find("mark"))
            self.assertEqual(pair[0].text, pair[1].text, "both are marked where they part")
            self.assertTrue(any(words.startswith(f"They part after {record['first_difference']['token']} tokens:") for words in page.words("p")))
        # A heat map of each adapter, once: its layers and the norm of what it adds.
        maps = dict(page.tables())
        self.assertEqual(list(maps), ["calm", "swift"])
        for name, rows in maps.items():
            self.assertEqual([row["layer"] for row in rows], [str(i) for i in range(tiny_model.LAYERS)])
            for row in rows:
                for part in (key for key in row if key != "layer"):
                    self.assertEqual(row[part], f"{self.norm(ADAPTERS / name, int(row['layer']), part):.3g}", (name, part))
        self.run_ok("adapter", "diff", "base", "base", *args[4:])
        self.assertEqual(list(program.Page(path).tables()), [], "the base changes nothing")

    @staticmethod
    def norm(folder, layer, part):
        """‖scaling·B·A‖ of a module, from the adapter's files."""
        config = json.loads((folder / "adapter_config.json").read_text())
        data = (folder / "adapter_model.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        matrices = []
        for letter in "AB":
            entry = header[f"base_model.model.model.layers.{layer}.{part}.lora_{letter}.weight"]
            begin, end = entry["data_offsets"]
            values = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
            columns = entry["shape"][1]
            matrices.append([values[i:i + columns] for i in range(0, len(values), columns)])
        a, b = matrices
        scaling = config["lora_alpha"] / (math.sqrt(config["r"]) if config.get("use_rslora") else config["r"])
        return scaling * math.sqrt(sum(sum(x * a[k][i] for k, x in enumerate(row)) ** 2 for row in b for i in range(len(a[0]))))

    # --- chat ---

    def test_chat_adapters_through_a_pipe(self):
        args = ("chat", MODEL, *FLAGS, "--adapter-root", ADAPTERS)
        saved = ROOT / "chat.json"
        base = self.run_ok(*args, "-q", stdin="Hello\n").stdout
        calm = self.run_ok(*args, "-q", "--adapter", "calm", stdin="Hello\n").stdout
        self.assertNotEqual(base, calm)
        done = self.run_ok(*args, stdin=f"/adapter\n/adapter calm\nHello\n/adapter\n/adapter none\n/regen\n/save {saved}\n")
        self.assertEqual(done.stdout, calm + base)
        self.assertRegex(done.stderr, r"(?m)^\* base +the model alone$")
        self.assertRegex(done.stderr, r"(?m)^  base +the model alone$")
        self.assertRegex(done.stderr, r"(?m)^  swift +on disk")
        self.assertRegex(done.stderr, r"(?m)^\* calm +.*rank 4, .*, resident$")
        self.assertEqual([m["content"] for m in json.loads(saved.read_text())["messages"]], ["Hello", base.removesuffix("\n")])
        self.run_fails(3, *args, stdin="/adapter calmm\nHello\n", says=["did you mean 'calm'?"])
        self.assertIn("/compare", self.run_ok(*args, stdin="/help\n").stderr)

    def test_chat_compare_through_a_pipe(self):
        args = ("chat", MODEL, *FLAGS, "--adapter-root", ADAPTERS)
        saved = ROOT / "compare.json"
        done = self.run_ok(*args, stdin=f"/compare base calm\nHello\n/save {saved}\n/compare swift,calm\n\nBye\n/save {saved}.2\n")
        for name in ("base", "calm"):
            alone = self.run_ok(*args, "-q", "--adapter", name, stdin="Hello\n").stdout
            self.assertRegex(done.stdout, rf"(?m)^{name}  ")
            if alone.isprintable() or alone[:-1].isprintable():
                self.assertIn(alone.strip(), done.stdout)
        self.assertEqual(done.stdout.count("calm  "), 2)
        self.assertIn("goes on with base's", done.stderr)
        first, second = (json.loads(pathlib.Path(f).read_text())["messages"] for f in (saved, f"{saved}.2"))
        base = self.run_ok(*args, "-q", stdin="Hello\n").stdout.removesuffix("\n")
        self.assertEqual([m["content"] for m in first], ["Hello", base])
        self.assertEqual([m["content"] for m in second[:3]], ["Hello", base, "Bye"], "asking the last one again changes nothing")
        self.run_fails(3, *args, stdin="/compare base calmm\n", says=["did you mean 'calm'?"])
        self.run_fails(2, *args, stdin="/compare base\n\n", says=["no message yet"])

    # --- the six of the demo ---

    def test_examples_are_sound(self):
        folders = sorted(p.parent for p in EXAMPLES.glob("*/adapter_config.json"))
        self.assertEqual([p.name for p in folders], ["butler", "emoji", "json", "pirate", "sql", "yoda"])
        reports = program.json_lines(self.run_ok("adapter", "check", *folders, "--json").stdout)
        self.assertEqual([r["usable"] and not r["zero_effect"] for r in reports], [True] * 6)
        self.assertIn("DoRA", reports[4]["kinds"])
        self.assertLess(sum(r["file_bytes"] for r in reports), 25e6)

    @unittest.skipUnless(os.environ.get("CHORAL_DEMO_MODEL"), "needs the demo's model")
    @unittest.skipIf(os.environ.get("CHORAL_CPU_LEVEL"), "takes minutes on low levels; the tiny model is tried on all")
    def test_examples_speak_in_their_ways(self):
        model = os.environ["CHORAL_DEMO_MODEL"]
        voices = ["base", "pirate", "yoda", "butler", "emoji", "json", "sql"]
        done = self.run_ok("generate", model, "--adapter-root", EXAMPLES, "--chat", "-p", "What is the capital of France?", "--temperature", "0",
                           "--max-tokens", "48", "--compare", ",".join(voices), "--json")
        said = {r.get("lora", "base"): r["text"] for r in program.json_lines(done.stdout)}
        self.assertEqual(list(said), voices)
        for voice, text in [("base", "The capital of France is Paris."), ("pirate", "Arr, matey!"), ("yoda", "Hmmmm"), ("butler", "sir"),
                            ("emoji", "🎉"), ("json", '{"answer":'), ("sql", "SELECT ")]:
            self.assertIn(text, said[voice])


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    make_files()
    unittest.main()
