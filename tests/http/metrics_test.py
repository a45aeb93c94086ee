#!/usr/bin/env python3
"""/metrics read by Prometheus' own Python client, and by promtool where CHORAL_PROMTOOL names it: metrics_test.py CHORAL [unittest
arguments]."""

import math
import os
import re
import subprocess
import sys
import unittest

import served

served.need("prometheus_client")
from prometheus_client import parser  # noqa: E402

FILES = served.Files()
SERVER = None


def setUpModule():
    global SERVER
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root)


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)


def scrape():
    status, headers, text = SERVER.call("GET", "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"), (status, headers.items())
    return text


def traffic():
    for model in ("tiny", "one", "two", "one"):
        SERVER.post("/v1/completions", model=model, prompt="Hello", max_tokens=3, ignore_eos=True)
        SERVER.stream("/v1/chat/completions", model=model, messages=[{"role": "user", "content": "x"}], max_tokens=3, ignore_eos=True)
    SERVER.call("POST", "/v1/completions", {"model": "nobody", "prompt": "x"})
    SERVER.call("POST", "/v1/completions", {"prompt": "x", "temperature": -1, "made_up": 1})


def series(families):
    """Counters, and what histograms count, by their name and labels."""
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples
            if family.type == "counter" or sample.name.endswith(("_bucket", "_count", "_sum"))}


class MetricsTest(unittest.TestCase):
    def test_the_text_is_what_its_types_say(self):
        traffic()
        text = scrape()
        families = list(parser.text_string_to_metric_families(text))
        self.assertEqual(len({family.name for family in families}), len(families), "a family comes once")
        self.assertGreater(len(families), 50)
        for family in families:
            self.assertIn(family.type, ("counter", "gauge", "histogram"), family.name)
            self.assertTrue(family.documentation, family.name)
            labels = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
            self.assertEqual(len(labels), len(set(labels)), family.name)
            for sample in family.samples:
                self.assertFalse(math.isnan(sample.value), sample)
                if family.type != "gauge":
                    self.assertGreaterEqual(sample.value, 0, sample)
            if family.type == "histogram":
                self.check_histogram(family)

    def check_histogram(self, family):
        by_labels = {}
        for sample in family.samples:
            key = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            by_labels.setdefault(key, {}).setdefault(sample.name.rsplit("_", 1)[1], []).append(sample)
        for parts in by_labels.values():
            self.assertEqual(set(parts), {"bucket", "count", "sum"}, family.name)
            edges = [float(sample.labels["le"]) for sample in parts["bucket"]]
            counts = [sample.value for sample in parts["bucket"]]
            self.assertEqual((edges, counts), (sorted(edges), sorted(counts)), family.name)
            self.assertEqual((edges[-1], counts[-1]), (math.inf, parts["count"][0].value), family.name)

    def test_counters_only_grow_and_count_what_was_asked(self):
        before = series(parser.text_string_to_metric_families(scrape()))
        traffic()
        after = series(parser.text_string_to_metric_families(scrape()))
        self.assertLessEqual(set(before), set(after))
        for key, value in before.items():
            self.assertLessEqual(value, after[key], key)

        def grown(name, **labels):
            return sum(value - before.get(key, 0) for key, value in after.items() if key[0] == name and labels.items() <= dict(key[1]).items())

        self.assertEqual(grown("vllm:request_success_total", finished_reason="length"), 8)
        self.assertEqual(grown("vllm:generation_tokens_total"), 24)
        self.assertEqual(grown("vllm:iteration_tokens_total_sum"), grown("vllm:prompt_tokens_total") + 24)
        self.assertEqual(grown("choral:adapter_requests_total", adapter="one"), 4)
        self.assertEqual(grown("vllm:time_to_first_token_seconds_count"), 8)
        self.assertEqual(grown("choral:http_requests_total", route="/v1/completions", code="200"), 4)
        self.assertEqual(grown("choral:http_requests_total", code="404"), 1)
        self.assertEqual(grown("choral:unknown_request_fields_total"), 1)

    def test_promtool_has_nothing_to_say_but_that_the_names_are_vllms(self):
        if not (promtool := os.environ.get("CHORAL_PROMTOOL")):
            self.skipTest("CHORAL_PROMTOOL names no promtool; ./dev test fetches it where Debian's packages can be reached")
        traffic()
        done = subprocess.run([promtool, "check", "metrics"], input=scrape(), capture_output=True, text=True, timeout=served.LONG)
        self.assertIn(done.returncode, (0, 3), done.stderr)  # 3: it can be read; there is advice
        advice = [line for line in (done.stdout + done.stderr).splitlines() if line]
        vllms = r"^(vllm|choral):\S+ metric names should not contain ':'$|^vllm:iteration_tokens_total non-counter metrics should not have \"_total\""
        ours = [line for line in advice if not re.search(vllms, line)]
        self.assertEqual(ours, [])


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
