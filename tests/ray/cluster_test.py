#!/usr/bin/env python3
"""A fleet on a real Ray of three nodes: requests pass unchanged, adapters have homes, and no answer notices what dies.
cluster_test.py CHORAL"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import unittest

import fleet_of_three
import served
from fleet_of_three import ADAPTERS, ADMIN, FLAGS, call

PROJECT = pathlib.Path(__file__).resolve().parents[2]
STREAMS, TOKENS = 50, 200
FLEET = SINGLE = None


def setUpModule():
    global FLEET, SINGLE
    FLEET = fleet_of_three.Fleet()
    SINGLE = served.Server(FLEET.files.model, "--adapter-root", FLEET.files.root, *FLAGS)


def tearDownModule():
    if SINGLE is not None:
        SINGLE.stop()
    if FLEET is not None:
        FLEET.stop()


# What is another each time, or depends on which requests came before.
CHANGING = ("id", "created", "created_at", "completed_at", "total_duration", "load_duration", "eval_duration", "prompt_eval_duration", "generation",
            "prompt_tokens_details", "input_tokens_details", "cache_read_input_tokens", "item_id", "timings", "sequence_number")


def pruned(value):
    if isinstance(value, list):
        return [pruned(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {key: pruned(entry) for key, entry in value.items() if key not in CHANGING}


def told(body):
    """An answer of JSON, or what a stream of it comes to: the pieces depend on the time."""
    lines = [line.removeprefix("data: ") for line in body.decode().split("\n") if line.startswith(("data: ", "{"))]
    events = [json.loads(line) for line in lines if line.startswith("{")]
    texts = collections.defaultdict(str)
    for event in events if len(events) > 1 else ():
        for part in event.get("choices") or [event]:
            delta = part.pop("delta", part.get("message", {}))
            where = part.get("index", 0) if "choices" in event else event.get("type")
            texts[where] += part.pop("text", "") or (delta if isinstance(delta, str) else delta.get("content") or delta.get("text") or "")
    return dict(texts), [pruned(event) for event in events[-1:]], lines[-1:] == ["[DONE]"], body if not events else b""


class ClusterTest(unittest.TestCase):
    maxDiff = None

    def test_1_requests_pass_unchanged(self):
        plain = {"prompt": "Once upon", "max_tokens": 8, "temperature": 0}
        chat = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 8, "temperature": 0}
        for path, body in (
                ("/v1/completions", plain), ("/v1/completions", {**plain, "model": "one", "n": 2, "temperature": 1, "seed": 4}),
                ("/v1/completions", {**plain, "stream": True}), ("/v1/completions", {**plain, "stream": True, "prompt": ["a", "b"]}),
                ("/v1/completions", {**plain, "stream": True, "n": 1, "best_of": 2, "temperature": 1, "seed": 4}),
                ("/v1/chat/completions", chat), ("/v1/chat/completions", {**chat, "stream": True, "stream_options": {"include_usage": True}}),
                ("/v1/messages", chat), ("/v1/messages", {**chat, "stream": True}), ("/v1/responses", {"input": "Hi", "max_output_tokens": 8,
                                                                                                      "temperature": 0, "stream": True}),
                ("/api/chat", {**chat, "options": {"temperature": 0, "num_predict": 8}}), ("/completion", {"prompt": "x", "n_predict": 4, "temperature": 0}),
                ("/tokenize", {"prompt": "abc"}), ("/v1/completions", {"prompt": 3}), ("/v1/completions", {**plain, "model": "nobody"}),
                ("/v1/completions", {**plain, "stream": True, "no_such_field": 1}), ("/v1/nowhere", {})):
            with self.subTest(path, body=body):
                status, headers, text = FLEET.call("POST", path, body)
                wanted_status, wanted_headers, wanted = call(SINGLE.port, "POST", path, body)
                self.assertEqual((status, told(text)), (wanted_status, told(wanted)))
                for name in ("Content-Type", "X-Choral-Adapter"):
                    self.assertEqual(headers.get_all(name) is None, wanted_headers.get_all(name) is None)
                self.assertEqual(headers["Content-Type"], wanted_headers["Content-Type"])
        for path in ("/v1/models?a=%20b", "/health", "/openapi.json", "/v1/lora_adapters/none"):
            self.assertEqual(FLEET.call("GET", path)[0], call(SINGLE.port, "GET", path)[0], path)
        self.assertIn(b"vllm:num_requests_running", FLEET.call("GET", "/metrics")[2])
        self.assertEqual(FLEET.call("GET", "/v1/models", headers={"X-Request-Id": "mine"})[1].get_all("X-Request-Id"), ["mine"])

    def test_2_each_adapter_has_a_home(self):
        for _ in range(3):
            for name in ADAPTERS:
                self.assertEqual(FLEET.call("POST", "/v1/completions", {"model": name, "prompt": "x", "max_tokens": 1})[0], 200)
        where = {name: FLEET.call("POST", "/v1/completions", {"model": name, "prompt": "y", "max_tokens": 1})[1]["X-Choral-Replica"] for name in ADAPTERS}
        self.assertGreater(len(set(where.values())), 1, where)
        held = [stats["adapters"] for stats in FLEET.each("record_routing_stats")]
        self.assertCountEqual([name for some in held for name in some if name in ADAPTERS], ADAPTERS)

    def test_2_a_prefix_is_found_again(self):
        body = {"prompt": "The same long beginning of many prompts. " * 16, "max_tokens": 1}
        cached = []
        for i in range(6):
            usage = json.loads(FLEET.call("POST", "/v1/completions", {**body, "prompt": body["prompt"] + str(i)})[2])["usage"]
            cached.append((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0))
        self.assertEqual([count > 500 for count in cached], [False] + [True] * 5, cached)
        self.assertGreater(max(len(stats["prefixes"]) for stats in FLEET.each("record_routing_stats")), 1)

    def test_3_adapters_are_loaded_everywhere(self):
        load = {"lora_name": "apart", "lora_path": str(FLEET.files.apart)}
        self.assertEqual(FLEET.call("POST", "/v1/load_lora_adapter", load)[0], 403)
        self.assertEqual(FLEET.call("POST", "/v1/load_lora_adapter", load, {"Authorization": ""})[0], 401)
        status, _, text = FLEET.call("POST", "/v1/load_lora_adapter", {**load, "lora_path": "/nowhere"}, ADMIN)
        self.assertEqual((status, json.loads(text)["error"]["param"]), (404, "lora_path"), text)
        self.assertEqual(FLEET.call("POST", "/v1/load_lora_adapter", {**load, "expected_generation": 3}, ADMIN)[0], 400)
        self.assertEqual(FLEET.call("POST", "/lora-adapters", [], ADMIN)[0], 501)
        self.assertEqual(FLEET.call("POST", "/v1/load_lora_adapter", load, ADMIN)[0], 200)
        self.assertTrue(all("apart" in stats["adapters"] for stats in FLEET.each("record_routing_stats")))
        # One of the servers dies: Ray gives it a successor, which has the adapter too.
        before = {replica["pid"] for replica in FLEET.wait_for(3)}
        dead = before.pop()
        fleet_of_three.kill(dead)
        deadline = time.monotonic() + fleet_of_three.LONG
        while dead in {replica["pid"] for replica in FLEET.wait_for(3)}:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.5)
        self.assertTrue(all("apart" in stats["adapters"] for stats in FLEET.each("record_routing_stats")))
        self.assertEqual(FLEET.call("POST", "/v1/completions", {"model": "apart", "prompt": "x", "max_tokens": 1})[0], 200)
        self.assertEqual(FLEET.call("POST", "/v1/unload_lora_adapter", {"lora_name": "apart"}, ADMIN)[0], 200)
        self.assertFalse(any("apart" in stats["adapters"] for stats in FLEET.each("record_routing_stats")))
        self.assertEqual(FLEET.call("POST", "/v1/unload_lora_adapter", {"lora_name": "apart"}, ADMIN)[0], 404)

    def undisturbed(self, asked):
        streams = fleet_of_three.Streams(SINGLE.port, asked).ended()
        self.assertTrue(all(stream.ends and not stream.others for stream in streams), [stream.others for stream in streams][:3])
        return [stream.text for stream in streams]

    def check(self, streams, asked):
        wanted = self.undisturbed(asked)
        ended = streams.ended()
        self.assertEqual([stream.others for stream in ended if stream.others], [])
        self.assertEqual([stream.text for stream in ended], wanted)
        self.assertEqual([stream.ends for stream in ended], [["length"]] * len(asked))

    def test_4_a_replica_is_killed_under_streams(self):
        asked = fleet_of_three.bodies(STREAMS, TOKENS)
        replicas = FLEET.wait_for(3)
        streams = fleet_of_three.Streams(FLEET.port, asked)
        streams.wait_until_begun()
        answers = [stats["answers"] for stats in FLEET.each("record_autoscaling_stats")]
        self.assertGreater(max(answers), 4)
        pid = replicas[answers.index(max(answers))]["pid"]
        fleet_of_three.kill(fleet_of_three.parent_of(pid))
        self.check(streams, asked)
        self.assertFalse(fleet_of_three.lives(pid))  # the server went with its replica

    def test_5_a_rolling_restart_under_streams(self):
        asked = fleet_of_three.bodies(STREAMS, TOKENS)
        before = {replica["pid"] for replica in FLEET.wait_for(3)}
        streams = fleet_of_three.Streams(FLEET.port, asked)
        streams.wait_until_begun()
        # Answers that take longer than a replica's grace go on at its successor.
        restart = threading.Thread(target=FLEET.run, kwargs={"arguments": [*FLAGS, "--max-num-queued-reqs", "999"]})
        restart.start()
        self.check(streams, asked)
        restart.join()
        self.assertFalse(before & {replica["pid"] for replica in FLEET.wait_for(3)})

    def test_6_a_node_is_killed_under_streams(self):
        asked = fleet_of_three.bodies(STREAMS, TOKENS)
        nodes = {replica["node_id"] for replica in FLEET.wait_for(3)}
        doomed = next(node for node in FLEET.nodes if node.node_id in nodes)
        streams = fleet_of_three.Streams(FLEET.port, asked)
        streams.wait_until_begun()
        FLEET.cluster.remove_node(doomed, allow_graceful=False)
        self.check(streams, asked)
        self.assertNotIn(doomed.node_id, {replica["node_id"] for replica in FLEET.wait_for(2)})

    def serve_run(self, *arguments):
        program = pathlib.Path(sys.executable).parent / "serve"
        done = subprocess.run([str(program), "run", "--non-blocking", "--address", FLEET.cluster.address, *arguments], capture_output=True, text=True,
                              timeout=fleet_of_three.LONG, env={**os.environ, "PYTHONWARNINGS": "ignore"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_7_the_commands_of_the_document(self):
        page = (PROJECT / "docs" / "serving" / "ray.md").read_text()
        command = re.search(r"^serve run (choral.ray:app) model=\S+ adapter_root=\S+ (replicas)=3$", page, re.M)
        self.serve_run(command[1], f"model={FLEET.files.model}", f"adapter_root={FLEET.files.root}", f"{command[2]}=2", "arguments=--max-model-len 64")
        self.assertEqual(json.loads(FLEET.call("GET", "/v1/models")[2])["data"][0]["max_model_len"], 64)
        FLEET.wait_for(2)
        config = (PROJECT / "examples" / "fleet" / "ray.yaml").read_text()
        for name, value in (("model", FLEET.files.model), ("adapter_root", FLEET.files.root), ("replicas", 1), ("threads", 1)):
            config, count = re.subn(rf"(?m)^( +{name}: ).*$", rf"\g<1>{value}", config)
            self.assertEqual(count, 1, name)
        config = re.sub(r"(?m)^(proxy_location|http_options):.*\n(?: +.*\n)*", "", config)  # of a Serve that runs already
        path = FLEET.files.folder / "ray.yaml"
        path.write_text(config.replace("name: choral", "name: default"))
        self.serve_run(str(path))
        FLEET.wait_for(1)
        self.assertEqual(FLEET.call("POST", "/v1/completions", {"model": "one", "prompt": "x", "max_tokens": 1})[0], 200)
        with self.assertRaises(ValueError):
            FLEET.run(no_such_setting=1)


if __name__ == "__main__":
    fleet_of_three.need_ray()
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2, warnings="ignore")
