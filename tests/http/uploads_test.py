#!/usr/bin/env python3
"""Adapters that clients send: uploads_test.py CHORAL [unittest arguments]."""

import json
import pathlib
import sys
import unittest

import served
from served import tiny_model

FILES = served.Files()
STATE = FILES.folder / "state"
SERVER = None
GREEDY = {"prompt": "Hello", "temperature": 0, "max_tokens": 8}
ROOM = 120_000  # bytes: two of these adapters
ROUTE = "/v1/adapter_uploads"
NAMES = ("adapter_config.json", "adapter_model.safetensors")
ADMIN, USER = "admin-key-0123456789", "user-key-0123456789"


def start(*args):
    return served.Server(FILES.model, "--adapter-root", FILES.root, *args)


def setUpModule():
    global SERVER
    SERVER = start("--state-dir", STATE, "--store-adapters", ROOM)


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)


def files_of(name):
    return {file: (FILES.root / name / file).read_bytes() for file in NAMES}


class UploadTest(unittest.TestCase):
    def setUp(self):
        self.server = SERVER

    def call(self, method, path, status=200, body=None, headers=None):
        got, head, answer = self.server.call(method, path, body, headers)
        self.assertEqual(got, status, f"{method} {path}: {answer}")
        self.assertNotIn(str(FILES.folder), json.dumps(answer), "no path of the server is shown")
        return head, answer

    def begin(self, files):
        sizes = [{"name": name, "bytes": len(content)} for name, content in files.items()]
        return self.call("POST", ROUTE, body={"files": sizes})[1]["id"]

    def send(self, files, piece=7000):
        upload = self.begin(files)
        for name, content in files.items():
            for at in range(0, len(content), piece):
                _, file = self.call("PUT", f"{ROUTE}/{upload}/{name}?offset={at}", body=content[at:at + piece])
                self.assertEqual(file, {"name": name, "bytes": len(content), "received": min(at + piece, len(content))})
        return upload

    def load(self, upload, name, status=200, **fields):
        return self.call("POST", f"{ROUTE}/{upload}/load", status, {"lora_name": name, **fields})

    def room(self):
        return self.call("GET", "/v1/lora_adapters")[1]["uploads"]

    def unload(self, name):
        self.call("POST", "/v1/unload_lora_adapter", body={"lora_name": name})

    def text(self, model):
        return self.server.post("/v1/completions", model=model, **GREEDY)["choices"][0]["text"]

    def stored(self):
        folder = STATE / "adapter_uploads"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


class GoodTest(UploadTest):
    def test_what_was_sent_answers_like_the_one_on_the_disk(self):
        before = self.stored()
        upload = self.send(files_of("one"))
        self.assertNotIn("sent", [a["name"] for a in self.call("GET", "/v1/lora_adapters")[1]["data"]], "not before it is loaded")
        head, answer = self.load(upload, "sent")
        self.assertIn("'sent'", answer)
        self.assertRegex(head["X-Choral-Adapter"], "^sent; generation=1; digest=[0-9a-f]{64}$")
        self.assertEqual(self.text("sent"), self.text("one"))
        self.assertNotEqual(self.text("sent"), self.text("base"))
        adapters = {a["name"]: a for a in self.call("GET", "/v1/lora_adapters")[1]["data"]}
        self.assertEqual(adapters["sent"]["digest"], adapters["one"]["digest"])
        self.assertEqual(self.room(), {"held_bytes": sum(map(len, files_of("one").values())), "most_bytes": ROOM})
        self.load(upload, "again", 404)
        self.load(self.send(files_of("two")), "sent", load_inplace=True, pinned=True)
        self.assertEqual(self.text("sent"), self.text("two"))
        self.assertEqual(len(self.stored()), len(before) + 1, "the one before is gone")
        self.unload("sent")
        self.assertEqual((self.stored(), self.room()["held_bytes"]), (before, 0))

    def test_of_llama_cpp_too(self):
        path = FILES.folder / "one.gguf"
        tiny_model.write_gguf_adapter(path, FILES.root / "one")
        self.load(self.send({"adapter_model.gguf": path.read_bytes()}), "of_gguf")
        self.assertEqual(self.text("of_gguf"), self.text("one"))
        self.unload("of_gguf")

    def test_a_name_that_is_taken_costs_nothing(self):
        upload = self.send(files_of("one"))
        self.load(self.send(files_of("two")), "taken")
        _, answer = self.load(upload, "taken", 400)
        self.assertEqual((answer["error"]["code"], answer["error"]["param"]), ("already_exists", "lora_name"))
        self.load(upload, "free")
        self.unload("free")
        self.unload("taken")

    def test_a_generation_that_is_expected(self):
        self.load(self.send(files_of("one")), "guarded", 409, expected_generation=5)
        self.load(self.send(files_of("one")), "guarded", expected_generation=0)
        self.unload("guarded")
        self.assertEqual(self.room()["held_bytes"], 0)

    def test_what_is_dropped_is_gone(self):
        before = self.stored()
        upload = self.send(files_of("one"))
        self.assertEqual(self.call("DELETE", f"{ROUTE}/{upload}")[1], {"id": upload, "object": "adapter_upload", "deleted": True})
        self.call("DELETE", f"{ROUTE}/{upload}", 404)
        self.load(upload, "dropped", 404)
        self.assertEqual((self.stored(), self.room()["held_bytes"]), (before, 0))


class BadTest(UploadTest):
    def refused(self, files, status=400):
        return self.call("POST", ROUTE, status, {"files": files})[1]["error"]["message"]

    def test_names(self):
        good = {"name": NAMES[0], "bytes": 10}
        for name in ("../adapter_config.json", "/etc/passwd", "adapter_model.bin", "x/adapter_model.safetensors", "", ".", "..",
                     "adapter_model.safetensors\0", "Adapter_Model.safetensors", "adapter_model.safetensors.part"):
            self.assertIn("no file of an adapter", self.refused([good, {"name": name, "bytes": 10}]), name)
        self.assertIn("twice", self.refused([good, good]))
        self.assertIn("save_pretrained", self.refused([good]))
        upload = self.begin(files_of("one"))
        for name in ("..%2f..%2fadapter_registry", "..%2Fadapter_config.json", "adapter_model.gguf", "%2e%2e", "load"):
            self.call("PUT", f"{ROUTE}/{upload}/{name}?offset=0", 404, b"x")
        for other in ("..", "upload_", upload + ".part", upload.upper(), "%2e%2e%2f" + upload):
            self.call("PUT", f"{ROUTE}/{other}/{NAMES[0]}?offset=0", 404, b"x")
        self.call("DELETE", f"{ROUTE}/{upload}")

    def test_sizes(self):
        config = {"name": NAMES[0], "bytes": 10}
        self.assertIn("--store-adapters", self.refused([config, {"name": NAMES[1], "bytes": ROOM}]))
        self.assertIn("at most 4.0 MiB", self.refused([{"name": NAMES[0], "bytes": 5 << 20}, {"name": NAMES[1], "bytes": 10}]))
        for wrong in (0, -1, 2**63, 1.5, "10", None, True):
            self.refused([config, {"name": NAMES[1], "bytes": wrong}])
        first = self.begin({NAMES[0]: b"x" * 10, NAMES[1]: b"x" * (ROOM - 20)})
        self.assertIn("already", self.refused([config, {"name": NAMES[1], "bytes": 10}], 429))
        self.call("PUT", f"{ROUTE}/{first}/{NAMES[0]}?offset=0", 400, b"x" * 11)
        for wrong in ("-1", "1.0", "x", "99999999999999999999"):
            self.call("PUT", f"{ROUTE}/{first}/{NAMES[0]}?offset={wrong}", 400, b"x")
        _, answer = self.call("PUT", f"{ROUTE}/{first}/{NAMES[0]}?offset=3", 409, b"x")
        self.assertEqual((answer["error"]["code"], answer["error"]["param"]), ("wrong_offset", "offset"))
        self.assertIn("0 of 10 bytes", self.load(first, "unfinished", 400)[1]["error"]["message"])
        self.call("DELETE", f"{ROUTE}/{first}")

    def test_bodies(self):
        for body in ({}, {"files": []}, {"files": {}}, {"files": ["x"]}, {"files": [{"name": "x"}]}, {"files": [{"bytes": 1, "name": 1}]}, [], "{"):
            self.call("POST", ROUTE, 400, body)
        self.call("POST", ROUTE, 415, b"{}", {"Content-Type": "text/plain"})
        upload = self.send(files_of("one"))
        for body in ({}, {"lora_name": ""}, {"lora_name": "../x"}, {"lora_name": "base"}):
            self.call("POST", f"{ROUTE}/{upload}/load", 400, body)
            if body.get("lora_name"):  # it got as far as the reader of adapters, which is the end of an upload
                upload = self.send(files_of("one"))
        self.call("DELETE", f"{ROUTE}/{upload}")
        self.assertEqual(self.room()["held_bytes"], 0)

    def test_broken_files_leave_nothing(self):
        good, before = files_of("one"), self.stored()
        weights = good[NAMES[1]]
        tiny_model.write_adapter(FILES.folder / "nan", 6, break_at="lora_B.weight")
        tiny_model.write_adapter(FILES.folder / "wide", 6, modules=("q_proj", "k_proj"), peft_type="IA3")

        def from_folder(name, file):
            return {file: (FILES.folder / name / file).read_bytes()}

        broken = {
            "no safetensors": ({NAMES[1]: b"no safetensors at all"}, NAMES[1]),
            "cut short": ({NAMES[1]: weights[:-9]}, NAMES[1]),
            "a huge header": ({NAMES[1]: b"\xff" * 7 + b"\x0f" + weights[8:]}, NAMES[1]),
            "no JSON": ({NAMES[0]: b"{"}, "adapter_config.json: broken JSON"),
            "another kind": (from_folder("wide", NAMES[0]), "peft_type 'IA3'"),
            "NaN": (from_folder("nan", NAMES[1]), "NaN"),
        }
        for what, (files, why) in broken.items():
            _, answer = self.load(self.send({**good, **files}), "broken", 400)
            self.assertIn(why, answer["error"]["message"], what)
            self.assertNotIn("broken", [a["name"] for a in self.call("GET", "/v1/lora_adapters")[1]["data"]], what)
        self.assertEqual((self.stored(), self.room()["held_bytes"]), (before, 0))


class RightTest(UploadTest):
    def started(self, *args):
        self.server = start(*args)
        self.addCleanup(self.server.stop)

    def test_it_is_off_unless_a_flag_says_otherwise(self):
        self.started("--state-dir", FILES.folder / "other state")
        _, answer = self.call("POST", ROUTE, 400, {"files": []})
        self.assertIn("--store-adapters", answer["error"]["message"])
        self.assertIsNone(self.room())
        with self.assertRaisesRegex(AssertionError, "--store-adapters needs --state-dir"):  # it does not begin to serve
            start("--store-adapters", "1M")

    def test_an_admins_key_is_needed(self):
        self.started("--state-dir", FILES.folder / "keyed state", "--store-adapters", ROOM, "--api-key", USER, "--admin-api-key", ADMIN)
        good = files_of("one")
        body = {"files": [{"name": name, "bytes": len(content)} for name, content in good.items()]}
        for key, status in ((None, 401), ("wrong", 401), (USER, 403), (ADMIN, 200)):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            _, answer = self.call("POST", ROUTE, status, body, headers)
        upload = answer["id"]
        for method, path in (("PUT", f"/{NAMES[0]}?offset=0"), ("POST", "/load"), ("DELETE", "")):
            self.call(method, f"{ROUTE}/{upload}{path}", 403, {}, {"Authorization": f"Bearer {USER}"})
            self.call(method, f"{ROUTE}/{upload}{path}", 401, {})
        self.call("DELETE", f"{ROUTE}/{upload}", 200, None, {"Authorization": f"Bearer {ADMIN}"})

    def test_pages_of_other_sites_get_nothing(self):
        for origin in ("http://evil.example", "null", f"http://localhost:{SERVER.port}"):
            for method, path in (("POST", ROUTE), ("PUT", f"{ROUTE}/x/{NAMES[0]}"), ("DELETE", f"{ROUTE}/x")):
                self.call(method, path, 403, {"files": []}, {"Origin": origin})
        self.call("POST", ROUTE, 400, {"files": []}, {"Origin": f"http://127.0.0.1:{SERVER.port}"})
        self.call("POST", ROUTE, 403, {"files": []}, {"X-Forwarded-For": "10.0.0.1"})


class RestartTest(UploadTest):
    def test_what_is_loaded_survives_kill_9_and_what_was_under_way_is_gone(self):
        state = FILES.folder / "killed state"
        folder = state / "adapter_uploads"
        flags = ("--state-dir", state, "--store-adapters", ROOM)
        self.server = start(*flags)
        self.load(self.send(files_of("two")), "kept")
        text = self.text("kept")
        self.send(files_of("one"))
        self.assertEqual(len(list(folder.iterdir())), 2)
        self.server.stop(9)
        self.server = start(*flags)
        self.assertEqual(self.text("kept"), text)
        self.assertEqual(len(list(folder.iterdir())), 1)
        self.assertEqual(self.room()["held_bytes"], sum(map(len, files_of("two").values())))
        self.assertEqual(self.server.stop(), 0)
        # Without the flag it is served on, and can be taken away.
        self.server = start("--state-dir", state)
        self.addCleanup(self.server.stop)
        self.assertEqual(self.text("kept"), text)
        self.unload("kept")
        self.assertEqual(list(folder.iterdir()), [])


if __name__ == "__main__":
    served.CHORAL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
