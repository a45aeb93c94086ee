#!/usr/bin/env python3
"""What trainers ask of a server that makes their roll-outs: pauses, adapters in a request's body, several generations of a name, and
SGLang's routes: rollouts_test.py CHORAL [unittest arguments]."""

import contextlib
import http.client
import json
import pathlib
import re
import sys
import threading
import time
import unittest
import uuid

import served
from catalogue_test import eventually
from served import tiny_model

FILES = served.Files(context=2048)
STATE = FILES.folder / "state"
SERVER = None
NAMES = ("adapter_config.json", "adapter_model.safetensors")
LONG_ANSWER = {"prompt": "Hello", "temperature": 0, "max_tokens": 600, "ignore_eos": True}
SHORT_ANSWER = {"prompt": "Hello", "temperature": 0, "max_tokens": 8}


def setUpModule():
    global SERVER
    for name, seed in (("three", 3), ("four", 4)):
        tiny_model.write_adapter(FILES.root / name, seed)
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root, "--state-dir", STATE, "--store-adapters", "1M",
                           "--adapter-generations", 3)


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)


class RolloutTest(unittest.TestCase):
    def call(self, method, path, body=None, status=200, headers=None):
        got, head, answer = SERVER.call(method, path, body, headers)
        self.assertEqual(got, status, f"{method} {path}: {answer}")
        self.assertNotIn(str(FILES.folder), json.dumps(answer), "no path of the server is shown")
        return head, answer

    def text(self, model):
        return SERVER.post("/v1/completions", model=model, **SHORT_ANSWER)["choices"][0]["text"]

    def adapter(self, name):
        return self.call("GET", f"/v1/lora_adapters/{name}")[1]

    def metric(self, name):
        return float(re.search(rf"^{name}{{[^}}]*}} (\S+)$", self.call("GET", "/metrics")[1], re.MULTILINE)[1])


class Stream:
    """An answer that is read on a thread of its own."""

    def __init__(self, **body):
        self.pieces = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._read, args=(body,), daemon=True)
        self.thread.start()

    def _read(self, body):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", SERVER.port, timeout=served.LONG)) as connection:
            connection.request("POST", "/v1/completions", json.dumps({"stream": True, **body}), served.JSON)
            for line in connection.getresponse():
                if line.startswith(b"data: ") and b"[DONE]" not in line:
                    self.pieces.append(json.loads(line[6:])["choices"][0])
        self.done.set()

    def wait_for(self, pieces):
        while len(self.pieces) < pieces and not self.done.is_set():
            time.sleep(0.005)
        return self

    def text(self):
        if not self.done.wait(served.LONG):
            raise AssertionError("the answer does not end")
        return "".join(p["text"] for p in self.pieces)


class PauseTest(RolloutTest):
    def setUp(self):
        self.addCleanup(lambda: self.call("POST", "/resume"))

    def paused_streams(self):
        """Answers that have begun when all stands still. A fast machine may be done with one before: then once more."""
        for _ in range(50):
            streams = [Stream(model=name, **LONG_ANSWER) for name in ("base", "one", "two")]
            for stream in streams:
                stream.wait_for(2)
            self.assertEqual(self.call("POST", "/pause?mode=keep")[1], {"status": "paused"})
            if not any(stream.done.is_set() for stream in streams):
                return streams
            self.call("POST", "/resume")
            for stream in streams:
                stream.text()
        self.fail("the answers are too short for this test")

    def test_what_stood_still_goes_on_to_the_same_text(self):
        wanted = [Stream(model=name, **LONG_ANSWER).text() for name in ("base", "one", "two")]
        streams = self.paused_streams()
        self.assertEqual(self.call("GET", "/is_paused")[1], {"is_paused": True})
        self.assertEqual(self.metric("choral:engine_paused"), 1)
        steps = self.metric("choral:engine_steps_total")
        late = Stream(model="one", **SHORT_ANSWER)
        self.call("GET", "/health")
        _, why = self.call("GET", "/readyz", status=503)
        self.assertIn("/resume", why["error"]["message"])
        # What trainers do meanwhile.
        self.call("POST", "/v1/load_lora_adapter", {"lora_name": "meanwhile", "lora_path": "three"})
        self.call("POST", "/v1/unload_lora_adapter", {"lora_name": "meanwhile"})
        self.call("POST", "/tokenize", {"prompt": "Hello"})
        self.assertEqual(self.metric("choral:engine_steps_total"), steps, "a step was computed")
        self.assertFalse(late.done.is_set())
        self.assertEqual(self.call("POST", "/resume")[1], {"status": "resumed"})
        self.assertEqual([stream.text() for stream in streams], wanted)
        self.assertEqual(late.text(), self.text("one"))
        self.assertEqual(self.call("GET", "/is_paused")[1], {"is_paused": False})
        self.assertEqual(self.metric("choral:engine_paused"), 0)
        self.call("GET", "/readyz")

    def test_abort_ends_and_wait_waits(self):
        stream = Stream(model="one", **LONG_ANSWER).wait_for(3)
        self.call("POST", "/pause")  # vLLM's default
        stream.text()
        self.assertEqual(stream.pieces[-1]["finish_reason"], "abort")
        self.call("POST", "/resume")
        wanted = Stream(model="one", **LONG_ANSWER).text()
        stream = Stream(model="one", **LONG_ANSWER).wait_for(3)
        for query in ("mode=wait", "wait_for_inflight_requests=true&clear_cache=false"):
            self.call("POST", f"/pause?{query}")
            self.assertTrue(stream.done.wait(served.LONG))
            self.assertEqual(stream.text(), wanted)

    def test_a_wait_that_is_called_off(self):
        stream = Stream(model="one", **{**LONG_ANSWER, "max_tokens": 1900}).wait_for(3)
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(SERVER.call("POST", "/pause?mode=wait")[0]))
        waiting.start()
        eventually(self, lambda: self.call("GET", "/is_paused")[1]["is_paused"])
        self.assertFalse(stream.done.is_set())
        self.call("POST", "/resume")
        waiting.join(served.LONG)
        self.assertEqual(answers, [503])
        stream.text()

    def test_what_is_asked_wrongly(self):
        for query in ("mode=sleep", "mode=", "clear_cache=maybe", "tags=weights"):
            self.call("POST", f"/pause?{query}", status=400)
        self.assertEqual(self.call("GET", "/is_paused")[1], {"is_paused": False})
        self.call("GET", "/pause", status=405)

    def test_who_may(self):
        server = served.Server(FILES.model, "--api-key", "user-key-0123456789", "--admin-api-key", "admin-key-0123456789")
        self.addCleanup(server.process.kill)
        for path in ("/pause?mode=keep", "/resume"):
            self.assertEqual(server.call("POST", path)[0], 401)
            self.assertEqual(server.call("POST", path, headers={"Authorization": "Bearer user-key-0123456789"})[0], 403)
            self.assertEqual(server.call("POST", path, headers={"Authorization": "Bearer admin-key-0123456789"})[0], 200)
        # One that ends goes on first, so that what stands still comes to its end.
        server.call("POST", "/pause?mode=keep", headers={"Authorization": "Bearer admin-key-0123456789"})
        body = json.dumps({"model": "base", **SHORT_ANSWER})
        answer = []
        asking = threading.Thread(target=lambda: answer.append(
            server.call("POST", "/v1/completions", body, {"Authorization": "Bearer user-key-0123456789"})[0]))
        asking.start()
        eventually(self, lambda: server.call("GET", "/load", headers={"Authorization": "Bearer user-key-0123456789"})[2]["server_load"], 1)
        self.assertEqual(server.stop(), 0)
        asking.join(served.LONG)
        self.assertEqual(answer, [200])


class BodyTest(RolloutTest):
    def form(self, fields, files):
        boundary = uuid.uuid4().hex
        parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields.items()]
        for name, content in files.items():
            parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode() + content + b"\r\n")
        return b"".join(parts) + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}

    def send(self, fields, files, status=200):
        body, headers = self.form(fields, files)
        return self.call("POST", "/v1/load_lora_adapter", body, status, headers)

    @staticmethod
    def files_of(name):
        return {file: (FILES.root / name / file).read_bytes() for file in NAMES}

    def held(self):
        return self.call("GET", "/v1/lora_adapters")[1]["uploads"]["held_bytes"]

    def unload(self, name):
        self.call("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    def test_an_adapter_in_a_body(self):
        head, answer = self.send({"lora_name": "sent"}, self.files_of("one"))
        self.assertIn("'sent'", answer)
        self.assertRegex(head["X-Choral-Adapter"], "^sent; generation=1; digest=[0-9a-f]{64}$")
        self.assertEqual(self.text("sent"), self.text("one"))
        self.send({"lora_name": "sent"}, self.files_of("two"), 400)
        self.send({"lora_name": "sent", "expected_generation": 7}, self.files_of("two"), 409)
        self.send({"lora_name": "sent", "load_inplace": "true", "pinned": "true"}, self.files_of("two"))
        self.assertEqual(self.text("sent"), self.text("two"))
        self.assertTrue(self.adapter("sent")["pinned"])
        self.unload("sent")
        self.assertEqual(self.held(), 0)

    def test_what_is_no_adapter(self):
        files = self.files_of("one")
        for fields, sent, says in (({}, files, "lora_name"), ({"lora_name": "x"}, {}, "files"),
                                   ({"lora_name": "x"}, {NAMES[0]: files[NAMES[0]]}, "adapter_model.safetensors"),
                                   ({"lora_name": "x"}, {**files, "evil.sh": b"x"}, "evil.sh"),
                                   ({"lora_name": "x", "pinned": "perhaps"}, files, "pinned"),
                                   ({"lora_name": "x"}, {**files, NAMES[1]: b"nothing"}, "safetensors")):
            with self.subTest(says):
                body, headers = self.form(fields, sent)
                status, _, answer = SERVER.call("POST", "/v1/load_lora_adapter", body, headers)
                self.assertIn(status, (400, 422, 424))
                self.assertIn(says, answer["error"]["message"])
        big = {**files, NAMES[1]: b"x" * (2 << 20)}
        self.assertEqual(self.send({"lora_name": "x"}, big, 400)[1]["error"]["code"], "too_large")
        self.assertEqual(self.held(), 0, "what was refused takes room")
        self.call("POST", "/v1/load_lora_adapter", "lora_name=x", 415, {"Content-Type": "application/x-www-form-urlencoded"})
        self.call("POST", "/v1/unload_lora_adapter", self.form({"lora_name": "one"}, {})[0], 415, self.form({}, {})[1])

    def test_without_room_for_any(self):
        server = served.Server(FILES.model)
        self.addCleanup(server.stop)
        body, headers = self.form({"lora_name": "sent"}, self.files_of("one"))
        status, _, answer = server.call("POST", "/v1/load_lora_adapter", body, headers)
        self.assertEqual(status, 400, answer)
        self.assertIn("--store-adapters", answer["error"]["message"])

    def test_generations_of_a_name(self):
        wanted = {name: self.text(name) for name in ("one", "two", "three", "four")}
        for name in ("one", "two", "three", "four"):
            self.send({"lora_name": "policy", "load_inplace": "true"}, self.files_of(name))
        listed = self.adapter("policy")
        self.assertEqual((listed["generation"], [e["generation"] for e in listed["earlier"]]), (4, [2, 3]))
        self.assertEqual(self.text("policy"), wanted["four"])
        for generation, name in ((4, "four"), (3, "three"), (2, "two")):
            self.assertEqual(self.text(f"policy@{generation}"), wanted[name])
        head, _ = self.call("POST", "/v1/completions", {"model": "policy@3", **SHORT_ANSWER})
        self.assertRegex(head["X-Choral-Adapter"], "^policy; generation=3;")
        self.assertEqual(SERVER.post("/v1/completions", model="base", lora=[{"name": "policy@2"}], **SHORT_ANSWER)["choices"][0]["text"],
                         wanted["two"])
        _, gone = self.call("POST", "/v1/completions", {"model": "policy@1", **SHORT_ANSWER}, 404)
        self.assertEqual(gone["error"]["code"], "model_not_found")
        self.assertIn("policy@2, policy@3", gone["error"]["message"])
        self.assertNotIn("policy@3", [m["id"] for m in self.call("GET", "/v1/models")[1]["data"]])
        stored = STATE / "adapter_uploads"
        self.assertEqual(len(list(stored.iterdir())), 3, "the files of one that is gone stay, or of one that is kept do not")
        # One that an answer began with stays its own to the end.
        whole = Stream(model="policy", **LONG_ANSWER).text()
        stream = Stream(model="policy", **LONG_ANSWER).wait_for(3)
        for name in ("one", "two", "three"):
            self.send({"lora_name": "policy", "load_inplace": "true"}, self.files_of(name))
        self.call("POST", "/v1/completions", {"model": "policy@4", **SHORT_ANSWER}, 404)
        self.assertEqual(stream.text(), whole)
        self.unload("policy")
        self.assertEqual(self.held(), 0)
        self.call("POST", "/v1/completions", {"model": "policy@7", **SHORT_ANSWER}, 404)


class SglangTest(RolloutTest):
    def test_its_routes(self):
        _, loaded = self.call("POST", "/load_lora_adapter", {"lora_name": "sg", "lora_path": "one", "pinned": True})
        self.assertEqual((loaded["success"], loaded["error_message"], loaded["loaded_adapters"]["sg"]), (True, "", "one"))
        self.assertEqual(self.text("sg"), self.text("one"))
        self.assertTrue(self.adapter("sg")["pinned"])
        _, again = self.call("POST", "/load_lora_adapter", {"lora_name": "sg", "lora_path": "two"}, 400)
        self.assertFalse(again["success"])
        self.assertIn("already", again["error_message"])
        self.assertEqual(again["error"]["code"], "already_exists")
        _, none = self.call("POST", "/load_lora_adapter", {"lora_name": "sg2", "lora_path": "none"}, 400)
        self.assertFalse(none["success"])
        head, _ = self.call("POST", "/load_lora_adapter", {"lora_name": "sg3", "lora_path": "two", "lora_id": "x"})
        self.assertIn("lora_id", str(head.items()), "a field without effect is not told")
        for name in ("sg", "sg3"):
            _, gone = self.call("POST", "/unload_lora_adapter", {"lora_name": name})
            self.assertTrue(gone["success"])
            self.assertNotIn(name, gone["loaded_adapters"])
        _, gone = self.call("POST", "/unload_lora_adapter", {"lora_name": "sg"}, 400)
        self.assertFalse(gone["success"])


if __name__ == "__main__":
    served.CHORAL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
