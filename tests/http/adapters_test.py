#!/usr/bin/env python3
"""Adapters that come and go while the server answers: adapters_test.py CHORAL [unittest arguments]."""

import json
import math
import re
import struct
import sys
import threading
import time
import unittest

import served
from served import tiny_model

FILES = served.Files()
SERVER = None
GREEDY = {"prompt": "Hello", "temperature": 0, "max_tokens": 8}


def setUpModule():
    global SERVER
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root, "--state-dir", FILES.folder / "state")


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)


def text(**body):
    return SERVER.post("/v1/completions", **GREEDY, **body)["choices"][0]["text"]


def admin(path, status=200, body=None, **fields):
    body = fields if body is None else body
    got, _, answer = SERVER.call("POST", path, body)
    assert got == status, f"{path} {body}: {got} {answer}"
    return answer


def tensors_of(path):
    """Each tensor as a list of rows."""
    raw = path.read_bytes()
    begin = 8 + struct.unpack_from("<Q", raw)[0]
    out = {}
    for name, tensor in json.loads(raw[8:begin]).items():
        (rows, columns), first = tensor["shape"], begin + tensor["data_offsets"][0]
        values = struct.unpack_from(f"<{rows * columns}f", raw, first)
        out[name] = [values[row * columns:(row + 1) * columns] for row in range(rows)]
    return out


class AdaptersTest(unittest.TestCase):
    def listed(self):
        return {a["name"]: a for a in SERVER.call("GET", "/v1/lora_adapters")[2]["data"]}

    def numbered(self):
        return SERVER.call("GET", "/lora-adapters")[2]

    def number(self, name):
        return next(entry["id"] for entry in self.numbered() if entry["path"] == name)

    def test_a_folder_of_the_root_is_a_model(self):
        base, one, two = text(), text(model="one"), text(model="two")
        self.assertEqual(len({base, one, two}), 3)
        for name in ("base:one", "base::one", "tiny:one"):
            self.assertEqual(text(model=name), one)
        self.assertEqual(text(lora=[{"name": "one", "scale": 1}]), one)
        self.assertEqual(text(model="base"), base)
        self.assertEqual(text(lora=[{"name": "one", "scale": 0.0}]), base)
        entry = self.listed()["one"]
        self.assertEqual((entry["generation"], entry["state"], entry["tier"], entry["rank"], entry["kind"]), (1, "resident", "host", 4, "LoRA"))
        self.assertGreater(entry["requests"], 0)
        self.assertEqual((entry["errors"], entry["error"]), (0, None))
        self.assertLess(abs(entry["last_use"] - time.time()), served.LONG)

    def test_what_was_never_used_and_what_cannot_be_is_listed(self):
        tiny_model.write_adapter(FILES.root / "unused", 7)
        tiny_model.write_adapter(FILES.root / "unreadable", 8)
        (FILES.root / "unreadable" / "adapter_config.json").write_text("{")
        end = time.monotonic() + served.LONG
        while not {"unused", "unreadable"} <= self.listed().keys() and time.monotonic() < end:
            time.sleep(0.05)
        unused, unreadable = self.listed()["unused"], self.listed()["unreadable"]
        self.assertEqual([unused[key] for key in ("state", "tier", "generation", "requests", "last_use", "errors", "error")], ["on disk", "file", 0, 0, None, 0, None])
        self.assertEqual((unreadable["state"], unreadable["requests"]), ("failed", 0))
        self.assertIn("adapter_config.json", unreadable["error"])
        self.assertNotIn(str(FILES.folder), unreadable["error"])

    def test_what_each_module_is_changed_by(self):
        status, _, effect = SERVER.call("GET", "/v1/lora_adapters/one/effect")
        self.assertEqual((status, effect["object"], effect["name"]), (200, "adapter_effect", "one"))
        tensors = tensors_of(FILES.root / "one" / "adapter_model.safetensors")
        of_pairs = {name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"): name for name in tensors if "lora_A" in name}
        self.assertEqual([m["module"] for m in effect["modules"]], sorted(of_pairs))
        for module in effect["modules"]:
            self.assertEqual({k: module[k] for k in ("kind", "rank", "scaling")}, {"kind": "LoRA", "rank": 4, "scaling": 2.0})
            a, b = tensors[of_pairs[module["module"]]], tensors[of_pairs[module["module"]].replace("lora_A", "lora_B")]
            columns = list(zip(*a))
            whole = math.sqrt(sum(sum(x * y for x, y in zip(row, column)) ** 2 for row in b for column in columns))
            self.assertAlmostEqual(module["norm"], 2 * whole, delta=1e-5 * whole)

    def test_one_of_the_list(self):
        entry = self.listed()["two"]
        status, _, alone = SERVER.call("GET", "/v1/lora_adapters/two")
        self.assertEqual((status, alone["name"], alone["id"]), (200, "two", entry["id"]))
        for path in ("/v1/lora_adapters/nobody", "/v1/lora_adapters/nobody/effect", "/v1/lora_adapters/base/effect"):
            status, _, answer = SERVER.call("GET", path)
            self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"), path)
        tiny_model.write_adapter(FILES.root / "cut", 12)
        path = FILES.root / "cut" / "adapter_model.safetensors"
        path.write_bytes(path.read_bytes()[:-9])
        status, _, answer = SERVER.call("GET", "/v1/lora_adapters/cut/effect")
        self.assertEqual((status, answer["error"]["code"]), (424, "adapter_unusable"))
        self.assertNotIn(str(FILES.folder), json.dumps(answer))

    def test_answers_name_the_adapters_content(self):
        _, headers, _ = SERVER.call("POST", "/v1/completions", {"model": "one", **GREEDY})
        self.assertRegex(headers["X-Choral-Adapter"], r"^one; generation=\d+; digest=[0-9a-f]{64}$")
        _, headers, _ = SERVER.call("POST", "/v1/completions", GREEDY)
        self.assertIsNone(headers["X-Choral-Adapter"])

    def test_load_replace_unload(self):
        tiny_model.write_adapter(FILES.root / "three", 3)
        admin("/v1/load_lora_adapter", lora_name="late", lora_path="three")
        first = text(model="late")
        answer = admin("/v1/load_lora_adapter", 400, lora_name="late", lora_path="three")
        self.assertEqual(answer["error"]["code"], "already_exists")
        tiny_model.write_adapter(FILES.root / "four", 4)
        admin("/v1/load_lora_adapter", lora_name="late", lora_path="four", load_inplace=True)
        self.assertNotEqual(text(model="late"), first)
        generation = self.listed()["late"]["generation"]
        self.assertEqual(generation, 2)
        admin("/v1/load_lora_adapter", 409, lora_name="late", lora_path="three", expected_generation=generation - 1)
        admin("/v1/load_lora_adapter", lora_name="late", lora_path="three", expected_generation=generation)
        self.assertEqual(text(model="late"), first)
        admin("/v1/unload_lora_adapter", lora_name="late")
        admin("/v1/unload_lora_adapter", 404, lora_name="late")
        self.assertEqual(SERVER.call("POST", "/v1/completions", {"model": "late", **GREEDY})[0], 404)

    def test_a_generation_that_is_expected_is_the_one_that_is_replaced(self):
        for i, name in enumerate(("g1", "g2", "g3")):
            tiny_model.write_adapter(FILES.root / name, 20 + i)
        load = {"lora_name": "guarded", "lora_path": "g1"}
        self.assertEqual(admin("/v1/load_lora_adapter", 409, **load, expected_generation=1)["error"]["code"], "stale_generation")
        status, headers, _ = SERVER.call("POST", "/v1/load_lora_adapter", {**load, "expected_generation": 0})
        self.assertEqual(status, 200)
        self.assertRegex(headers["X-Choral-Adapter"], "^guarded; generation=1; digest=[0-9a-f]{64}$")
        answer = admin("/v1/load_lora_adapter", 409, **load, expected_generation=0, load_inplace=True)
        self.assertEqual((answer["error"]["param"], answer["error"]["type"]), ("expected_generation", "conflict_error"))
        for wrong in (-1, "1", 1.0, True, [1], 2**31):
            answer = admin("/v1/load_lora_adapter", 400, **load, expected_generation=wrong)
            self.assertEqual(answer["error"]["param"], "expected_generation", wrong)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(SERVER.call("POST", "/v1/load_lora_adapter", {**load, "lora_path": path, "expected_generation": 1})))
                   for path in ("g2", "g3") * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(served.LONG)
        self.assertEqual(sorted(status for status, _, _ in answers), [200] + [409] * 7)
        self.assertEqual(self.listed()["guarded"]["generation"], 2)
        admin("/v1/unload_lora_adapter", 409, lora_name="guarded", expected_generation=1)
        admin("/v1/pin_lora_adapter", 400, lora_name="guarded", expected_generation=2)
        self.assertIn("guarded", self.listed())
        admin("/v1/unload_lora_adapter", lora_name="guarded", expected_generation=2)
        admin("/v1/unload_lora_adapter", 404, lora_name="guarded", expected_generation=2)
        admin("/v1/load_lora_adapter", **load, expected_generation=0)
        self.assertEqual(self.listed()["guarded"]["generation"], 3, "old numbers stand for old contents")
        admin("/v1/unload_lora_adapter", lora_name="guarded")

    def test_the_document_says_which_routes_take_a_generation(self):
        paths = SERVER.call("GET", "/openapi.json")[2]["paths"]
        for route, wanted in (("load", True), ("unload", True), ("pin", False), ("unpin", False)):
            body = paths[f"/v1/{route}_lora_adapter"]["post"]["requestBody"]["content"]["application/json"]["schema"]
            self.assertEqual(body["properties"].get("expected_generation"), {"type": "integer", "minimum": 0} if wanted else None, route)

    def test_mistakes(self):
        admin("/v1/load_lora_adapter", 400, lora_path="one")
        admin("/v1/load_lora_adapter", 400, lora_name="x")
        admin("/v1/load_lora_adapter", 404, lora_name="x", lora_path="nowhere")
        for path in ("..", "../tiny", "/etc", str(FILES.model)):
            self.assertNotIn(str(FILES.folder), json.dumps(admin("/v1/load_lora_adapter", 403, lora_name="x", lora_path=path)))
        tiny_model.write_adapter(FILES.root / "broken", 5, break_at="lora_B.weight")
        answer = admin("/v1/load_lora_adapter", 400, lora_name="x", lora_path="broken")
        self.assertNotIn(str(FILES.folder), json.dumps(answer))
        status, _, _ = SERVER.call("POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "one"}, {"Origin": "http://evil.example"})
        self.assertEqual(status, 403)

    def test_a_request_for_a_broken_folder_shows_no_path(self):
        tiny_model.write_adapter(FILES.root / "nan", 6, break_at="lora_B.weight")
        for stream in (False, True):
            status, _, answer = SERVER.call("POST", "/v1/completions", {"model": "nan", "stream": stream, **GREEDY})
            self.assertEqual((status, answer["error"]["code"], answer["error"]["type"]), (424, "adapter_unusable", "dependency_error"))
            self.assertIn("NaN", answer["error"]["message"])
            self.assertNotIn(str(FILES.folder), json.dumps(answer))
        entry = self.listed()["nan"]
        self.assertEqual((entry["state"], entry["requests"], entry["generation"]), ("failed", 2, 0))
        self.assertEqual(entry["errors"], 1)  # its files are the same: nobody reads them again
        self.assertIn("NaN", entry["error"])
        self.assertNotIn(str(FILES.folder), entry["error"])
        self.assertIsNotNone(entry["last_use"])

    def test_a_folder_with_much_wrong_is_told_of_in_a_line(self):
        tiny_model.write_adapter(FILES.root / "alien", 6, modules=("q_proj", "k_proj", "v_proj", "o_proj"), r=8)
        status, _, answer = SERVER.call("POST", "/v1/completions", {"model": "alien", **GREEDY})
        self.assertEqual((status, answer["error"]["code"]), (424, "adapter_unusable"))
        for told in (answer["error"]["message"], self.listed()["alien"]["error"],
                     admin("/v1/load_lora_adapter", 400, lora_name="x", lora_path="alien")["error"]["message"]):
            self.assertRegex(told, r": \d+ problems: .*; …$")
            self.assertNotIn("\n", told)
            self.assertNotIn("((", told)
            self.assertLess(len(told), 800)
        status, _, answer = SERVER.call("POST", "/v1/completions", {"model": "one", "prompt": [10**9], "max_tokens": 1})
        self.assertEqual(status, 400, "what is wrong with the request stays so")

    def test_pins(self):
        text(model="one")
        self.assertTrue(admin("/v1/pin_lora_adapter", lora_name="one")["pinned"])
        self.assertFalse(admin("/v1/unpin_lora_adapter", lora_name="one")["pinned"])
        admin("/v1/pin_lora_adapter", 404, lora_name="nobody")

    def test_scales_as_llama_cpp_has_them(self):
        base, one = text(model="base"), text(model="one")
        number = self.number("one")
        self.assertEqual(text(lora=[{"id": number, "scale": 1.0}]), one)
        admin("/lora-adapters", body=[{"id": number, "scale": 1.0}])
        try:
            self.assertEqual({entry["path"]: entry["scale"] for entry in self.numbered() if entry["scale"]}, {"one": 1.0})
            for open_ in ({}, {"model": None}, {"model": "tiny"}, {"lora": None}):
                self.assertEqual(text(**open_), one, open_)
            for closed in ({"model": "base"}, {"lora": "base"}, {"lora": []}, {"model": "tiny", "lora": []}, {"model": "base", "lora": "base"},
                           {"lora": [{"id": number, "scale": 0.0}]}):
                self.assertEqual(text(**closed), base, closed)
            self.assertEqual(text(model="two", lora=[]), text(model="two"))
            chat = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 8}
            said = [SERVER.post("/v1/chat/completions", **chat, **who)["choices"][0]["message"]["content"] for who in ({}, {"model": "one"}, {"model": "base"})]
            self.assertEqual(said[0], said[1])
            self.assertNotEqual(said[0], said[2])
            vectors = [SERVER.post("/v1/embeddings", input="Hello", **who)["data"][0]["embedding"] for who in ({}, {"model": "one"}, {"model": "base"})]
            self.assertEqual(vectors[0], vectors[1])
            self.assertNotEqual(vectors[0], vectors[2])
        finally:
            admin("/lora-adapters", body=[])
        self.assertEqual(text(), base)
        admin("/lora-adapters", 400, body=[{"id": 100_000, "scale": 1.0}])
        status, _, answer = SERVER.call("POST", "/v1/completions", {"lora": [{"id": 100_000}], **GREEDY})
        self.assertEqual((status, answer["error"]["param"]), (400, "lora"))

    def test_a_scale_goes_with_its_adapter(self):
        tiny_model.write_adapter(FILES.root / "leaving", 31)
        admin("/v1/load_lora_adapter", lora_name="guest", lora_path="leaving")
        admin("/lora-adapters", body=[{"id": self.number("guest"), "scale": 1.0}])
        self.assertEqual(text(), text(model="guest"))
        admin("/v1/unload_lora_adapter", lora_name="guest")
        self.assertEqual(text(), text(model="base"))

    def test_there_is_one_list_with_one_number_a_name(self):
        for name in ("team/listed", "listed"):
            tiny_model.write_adapter(FILES.root / name, 7)
        end = time.monotonic() + served.LONG
        while not {"listed", "team/listed"} <= self.listed().keys() and time.monotonic() < end:
            time.sleep(0.05)
        listed, numbered = self.listed(), {entry["path"]: entry["id"] for entry in self.numbered()}
        self.assertEqual(numbered, {name: a["id"] for name, a in listed.items() if name in numbered})
        self.assertLessEqual({name for name, a in listed.items() if a["state"] != "failed"}, set(numbered))
        self.assertEqual([entry["id"] for entry in self.numbered()], sorted(numbered.values()))
        self.assertEqual(len(set(a["id"] for a in listed.values())), len(listed))
        self.assertEqual({numbered["one"], numbered["two"]}, {0, 1}, "llama.cpp counts from 0")
        models = [m["id"] for m in SERVER.call("GET", "/v1/models")[2]["data"]]
        self.assertEqual(set(models) - {"tiny"}, set(numbered))
        text(model="listed")
        self.assertEqual(self.number("listed"), numbered["listed"], "a use changes no number")
        metrics = SERVER.call("GET", "/metrics")[2]
        counts = {state: int(value) for state, value in re.findall(r'^choral:adapters\{.*state="(\w+)".*\} (\d+)$', metrics, re.M)}
        states = [a["state"].replace(" ", "_") for a in self.listed().values()]
        self.assertEqual(counts, {state: states.count(state) for state in counts})
        self.assertGreater(counts["on_disk"], 0)

    def test_replacing_under_load_mixes_no_versions(self):
        tiny_model.write_adapter(FILES.root / "a", 11)
        tiny_model.write_adapter(FILES.root / "b", 12)
        allowed = set()
        for source in ("a", "b"):
            admin("/v1/load_lora_adapter", lora_name="swap", lora_path=source, load_inplace=True)
            allowed.add(text(model="swap"))
        self.assertEqual(len(allowed), 2)
        base, seen, errors, done = text(), set(), [], threading.Event()

        def ask():
            while not done.is_set():
                try:
                    seen.add(text(model="swap"))
                    assert text() == base
                except AssertionError as error:
                    errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for i in range(40):
            admin("/v1/load_lora_adapter", lora_name="swap", lora_path="ab"[i % 2], load_inplace=True)
        done.set()
        for thread in threads:
            thread.join(served.LONG)
        self.assertEqual(errors, [])
        self.assertLessEqual(seen, allowed)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
