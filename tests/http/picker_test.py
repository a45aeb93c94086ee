#!/usr/bin/env python3
"""/metrics as the endpoint picker of the Kubernetes Gateway API reads it, and the scores that it and llm-d give a server by that:
picker_test.py CHORAL [unittest arguments]."""

import sys
import time
import unittest

import served

served.need("prometheus_client")
from prometheus_client import parser  # noqa: E402

FILES = served.Files()


class Endpoint:
    """What a picker keeps of a server: the newest sample of each metric, and lists out of labels."""

    def __init__(self, text):
        self.families = {family.name: family.samples for family in parser.text_string_to_metric_families(text)}
        self.waiting, self.running = self.gauge("vllm:num_requests_waiting"), self.gauge("vllm:num_requests_running")
        self.kv_usage = self.gauge("vllm:kv_cache_usage_perc")
        # Several series may be there, with other labels: the one with the highest value, a time, is the newest.
        newest = max(self.families["vllm:lora_requests_info"], key=lambda sample: sample.value).labels
        self.max_active = int(newest["max_lora"])
        self.active, self.coming = (set(filter(None, newest[label].split(",")))
                                    for label in ("running_lora_adapters", "waiting_lora_adapters"))
        cache = max(self.families["vllm:cache_config_info"], key=lambda sample: sample.value).labels
        self.block_size, self.blocks = int(cache["block_size"]), int(cache["num_gpu_blocks"])
        self.loaded = {sample.labels["adapter_name"]: sample.labels for sample in self.families.get("vllm:lora_adapter_loaded", [])
                       if sample.value == 1}
        self.on_gpu, self.slots = self.gauge("vllm:num_gpu_loaded_lora_adapters"), self.gauge("vllm:max_gpu_lora_adapters")

    def gauge(self, name):
        (sample,) = self.families[name]
        assert sample.labels["model_name"] == "tiny", sample
        return sample.value

    def affinity(self, adapter):
        """The picker's lora-affinity-scorer."""
        if adapter in self.active:
            return 1.0
        if len(self.active) + len(self.coming) < self.max_active:
            return 0.8
        return 0.6 if adapter in self.coming else 0.0

    def load_state(self, adapter):
        """llm-d's lora-load-state-scorer."""
        if adapter in self.loaded:
            return 1.0 if self.loaded[adapter]["level"] == "gpu" else 0.7
        if self.on_gpu < self.slots:
            return 0.6
        idle = [name for name, labels in self.loaded.items() if name not in self.coming and labels["pinned"] == "false"]
        return 0.3 if idle else 0.0


class PickerTest(unittest.TestCase):
    def server(self, *flags):
        server = served.Server(FILES.model, "--adapter-root", FILES.root, *flags)
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0, "".join(server.said)))
        return server

    def scrape(self, server):
        status, _, text = server.call("GET", "/metrics")
        self.assertEqual(status, 200)
        return Endpoint(text)

    def ask(self, server, model):
        server.post("/v1/completions", model=model, prompt="Hello", max_tokens=2)

    def test_an_idle_server_is_free_and_knows_its_cache(self):
        endpoint = self.scrape(self.server())
        self.assertEqual((endpoint.waiting, endpoint.running, endpoint.kv_usage), (0, 0, 0))
        self.assertGreater(endpoint.block_size, 0)
        self.assertGreater(endpoint.blocks, 0)
        self.assertEqual((endpoint.affinity("one"), endpoint.load_state("one")), (0.8, 0.6))

    def test_an_adapter_that_was_used_counts_although_it_is_idle(self):
        server = self.server()
        self.ask(server, "one")
        endpoint = self.scrape(server)
        self.assertEqual((endpoint.affinity("one"), endpoint.load_state("one")), (1.0, 1.0))
        self.assertEqual((endpoint.affinity("two"), endpoint.load_state("two")), (0.8, 0.6))
        self.assertEqual(endpoint.loaded["one"]["pinned"], "false")
        loads = {sample.name: sample.value for sample in endpoint.families["vllm:lora_adapter_load_seconds"]}
        self.assertEqual(loads["vllm:lora_adapter_load_seconds_count"], 1)

    def test_a_full_server_says_whether_it_could_make_room(self):
        server = self.server("--max-cpu-loras", "1")
        self.ask(server, "one")
        endpoint = self.scrape(server)
        self.assertEqual(endpoint.slots, 1)
        self.assertEqual((endpoint.affinity("two"), endpoint.load_state("two")), (0.0, 0.3))
        self.ask(server, "two")
        endpoint = self.scrape(server)
        self.assertEqual(sorted(endpoint.loaded), ["two"], "one had to go")

    def test_a_pinned_adapter_is_told_from_one_that_may_go(self):
        server = self.server("--max-cpu-loras", "2")
        server.post("/v1/pin_lora_adapter", lora_name="one")
        self.ask(server, "two")
        endpoint = self.scrape(server)
        self.assertEqual({name: labels["pinned"] for name, labels in endpoint.loaded.items()}, {"one": "true", "two": "false"})
        self.assertEqual(endpoint.load_state("another"), 0.3)

    def test_an_adapter_that_is_unloaded_is_gone_at_once(self):
        server = self.server()
        server.post("/v1/load_lora_adapter", lora_name="mine", lora_path=str(FILES.root / "one"))
        for _ in range(200):  # it is in memory once the engine's loop has turned
            if self.scrape(server).load_state("mine") == 1.0:
                break
            time.sleep(0.05)
        self.assertEqual(self.scrape(server).load_state("mine"), 1.0)
        server.post("/v1/unload_lora_adapter", lora_name="mine")
        endpoint = self.scrape(server)
        self.assertNotIn("mine", endpoint.loaded)
        self.assertNotIn("mine", endpoint.active)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
