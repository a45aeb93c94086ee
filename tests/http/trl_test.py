#!/usr/bin/env python3
"""TRL's own client of a server that makes roll-outs for its asynchronous trainers: trl_test.py CHORAL [unittest arguments]."""

import importlib.util
import logging
import pathlib
import sys
import types
import unittest

import rollouts_test
import served
from rollouts_test import LONG_ANSWER, RolloutTest, Stream

served.need("requests")  # its client's own
if (TRL := importlib.util.find_spec("trl")) is None:
    print("skipped: no Python package 'trl' here; ./dev test installs it where the package index can be reached")
    sys.exit(77)
setUpModule, tearDownModule = rollouts_test.setUpModule, rollouts_test.tearDownModule


class TrlTest(RolloutTest):
    """TRL's client as it stands, of which only what it logs by is put in its place: the rest of TRL asks for torch."""

    def client(self):
        file = pathlib.Path(TRL.submodule_search_locations[0]) / "experimental" / "async_grpo" / "vllm_client.py"
        planted = {name: types.ModuleType(name) for name in
                   ("accelerate", "accelerate.logging", "trl", "trl.import_utils", "trl.experimental", "trl.experimental.async_grpo")}
        planted["accelerate.logging"].get_logger = logging.getLogger
        planted["trl.import_utils"].is_requests_available = lambda: True
        for package in ("trl", "trl.experimental", "trl.experimental.async_grpo"):
            planted[package].__path__ = []
        before = {name: sys.modules.get(name) for name in planted}
        sys.modules.update(planted)
        try:
            made = importlib.util.spec_from_file_location("trl.experimental.async_grpo.vllm_client", file)
            module = importlib.util.module_from_spec(made)
            made.loader.exec_module(module)
        finally:
            for name, module_before in before.items():
                if module_before is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module_before
        return module.VLLMClient(f"http://127.0.0.1:{rollouts_test.SERVER.port}")

    def test_its_trainer_sends_an_adapter(self):
        client = self.client()
        client.wait_for_server_ready()
        self.assertEqual(client.get_world_size(), 1)
        self.assertEqual(client.get_max_model_len(), 2048)
        info = client.get_server_info()
        self.assertGreaterEqual(info["lora_config"]["max_lora_rank"], 8)
        self.assertGreaterEqual(info["lora_config"]["max_loras"], 4)
        self.assertEqual(info["parallel_config"]["data_parallel_size"], 1)
        # As AsyncGRPOTrainer._sync_weight_lora does it, with answers under way.
        whole = {name: Stream(model=name, **LONG_ANSWER).text() for name in ("one", "two")}
        client.load_lora_adapter("trl-policy-v1", "one")
        stream = Stream(model="trl-policy-v1", **LONG_ANSWER).wait_for(3)
        client.pause()
        client.load_lora_adapter("trl-policy-v2", "two")
        client.resume()
        client.unload_lora_adapter("trl-policy-v1")
        client.unload_lora_adapter("trl-policy-v0")  # no error
        self.assertEqual(stream.text(), whole["one"])
        self.assertEqual(Stream(model="trl-policy-v2", **LONG_ANSWER).text(), whole["two"])
        client.unload_lora_adapter("trl-policy-v2")
        with self.assertRaises(Exception) as refused:
            client.init_weight_transfer_engine({})
        self.assertIn("base", str(refused.exception))


if __name__ == "__main__":
    served.CHORAL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
