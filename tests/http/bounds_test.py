#!/usr/bin/env python3
"""What is large or long costs nobody else: bounds_test.py CHORAL [unittest arguments]. Its model is tiny, with room for long prompts."""

import json
import re
import sys
import threading
import unittest

import served

LONG_PROMPT = 6000  # tokens
FILES = SERVER = None


def metric(name):
    return float(re.search(rf"^{name}(?:\{{.*\}})? (\S+)$", SERVER.call("GET", "/metrics")[2], re.M)[1])


def resident_bytes(figure):
    with open(f"/proc/{SERVER.process.pid}/status", encoding="utf-8") as status:
        return int(re.search(rf"{figure}:\s+(\d+) kB", status.read())[1]) * 1024


def call_measured(path, body):
    """The call's answer, and by how many bytes the server had grown at its largest meanwhile."""
    with open(f"/proc/{SERVER.process.pid}/clear_refs", "w", encoding="utf-8") as peak:
        peak.write("5")
    before = resident_bytes("VmRSS")
    answer = SERVER.call("POST", path, body)
    return answer, resident_bytes("VmHWM") - before


class BoundsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global FILES, SERVER
        FILES = served.Files(context=8192)
        SERVER = served.Server(FILES.model, "--max-num-batched-tokens", "8192", "--access-log", "off")

    @classmethod
    def tearDownClass(cls):
        SERVER.stop()
        FILES.temp.cleanup()

    def test_probes_are_answered_within_a_step(self):
        answered = threading.Event()

        def ask():
            SERVER.post("/v1/completions", prompt=[200 - i % 70 for i in range(LONG_PROMPT)], max_tokens=1)
            answered.set()

        steps = metric("choral:engine_steps_total")
        threading.Thread(target=ask).start()
        within = []
        while not answered.is_set():
            health = [SERVER.call("GET", path)[0] for path in ("/health", "/readyz")]
            if metric("choral:engine_step_tokens") == LONG_PROMPT:
                self.assertEqual(health, [200, 200])
                self.assertEqual(metric("choral:engine_steps_total"), steps, "the step has not ended yet")
                within.append(metric("choral:engine_step_age_seconds"))
                break
        self.assertTrue(within, "no figure came before the step had ended")
        self.assertTrue(answered.wait(served.LONG))
        self.assertEqual(SERVER.call("GET", "/health")[0], 200)

    def test_a_long_answer_is_never_whole_in_memory(self):
        prompts = [[65 + (i + p) % 50 for i in range(2000)] for p in range(10)]
        ask = {"prompt": prompts, "max_tokens": 1, "temperature": 0}
        SERVER.post("/v1/completions", **ask)
        (status, headers, answer), grown = call_measured("/v1/completions", {**ask, "prompt_logprobs": 20})
        self.assertEqual(status, 200)
        self.assertEqual(headers["Transfer-Encoding"], "chunked")
        self.assertEqual([choice["index"] for choice in answer["choices"]], list(range(10)))
        for choice in answer["choices"]:
            self.assertEqual(len(choice["prompt_logprobs"]), 2000)
            self.assertIsNone(choice["prompt_logprobs"][0])
            self.assertTrue(all(len(entry) >= 20 for entry in choice["prompt_logprobs"][1:]))
        self.assertLess(grown, len(json.dumps(answer)), "values and text, or more")

    def test_a_short_answer_has_its_length(self):
        status, headers, answer = SERVER.call("POST", "/v1/completions", {"prompt": "x", "max_tokens": 3, "logprobs": 2})
        self.assertEqual(status, 200)
        self.assertIsNone(headers["Transfer-Encoding"])
        self.assertEqual(len(answer["choices"][0]["logprobs"]["tokens"]), 3)

    def test_many_vectors_are_sent_in_pieces(self):
        inputs = [[65 + i % 100] for i in range(512)]
        status, headers, answer = SERVER.call("POST", "/v1/embeddings", {"input": inputs})
        self.assertEqual((status, headers["Transfer-Encoding"]), (200, "chunked"))
        self.assertEqual([entry["index"] for entry in answer["data"]], list(range(512)))
        self.assertEqual(answer["usage"]["prompt_tokens"], 512)

    def test_a_body_of_nothing_but_objects_is_refused(self):
        (status, _, answer), grown = call_measured("/v1/chat/completions", '{"messages":[' + "{}," * 2_000_000 + "{}]}")
        self.assertEqual(status, 400)
        self.assertIn("more than 128.0 MiB of memory", answer["error"]["message"])
        self.assertLess(grown, 64 << 20, "the body itself, while it grows")


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
