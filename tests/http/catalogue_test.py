#!/usr/bin/env python3
"""One catalogue of adapters for several servers, in a folder that they share: catalogue_test.py CHORAL [unittest arguments]."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import served
from served import tiny_model

FILES = served.Files()
GREEDY = {"prompt": "Hello", "temperature": 0, "max_tokens": 8}


def eventually(test, what, wanted=True):
    """What `what()` gives once it is `wanted`."""
    end = time.monotonic() + served.LONG
    while (got := what()) != wanted:
        if time.monotonic() > end:
            test.fail(f"{got!r} stays, and {wanted!r} is wanted")
        time.sleep(0.05)
    return got


class Replica:
    """A server that is gone at the test's end, whatever happened."""

    def __init__(self, test, *args):
        self.server = served.Server(FILES.model, "--adapter-memory", "8M", *args)
        test.addCleanup(self.end)
        self.test = test

    def end(self):
        if self.server.process.poll() is None:
            self.test.assertEqual(self.server.stop(), 0, "".join(self.server.said))

    def call(self, method, path, body=None, status=200):
        got, _, answer = self.server.call(method, path, body)
        self.test.assertEqual(got, status, f"{method} {path}: {answer}")
        return answer

    def load(self, name, path, status=200, **fields):
        return self.call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path, **fields}, status)

    def unload(self, name, status=200):
        return self.call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, status)

    def listed(self):
        return self.call("GET", "/v1/lora_adapters")

    def adapter(self, name):
        return {a["name"]: a for a in self.listed()["data"]}.get(name)

    def models(self):
        return [m["id"] for m in self.call("GET", "/v1/models")["data"]][1:]

    def text(self, model):
        status, _, answer = self.server.call("POST", "/v1/completions", {"model": model, **GREEDY})
        return answer["choices"][0]["text"] if status == 200 else status

    def metric(self, name):
        found = re.search(rf"^{name}{{[^}}]*}} (\S+)$", self.call("GET", "/metrics"), re.MULTILINE)
        return float(found[1]) if found else None


class CatalogueTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "adapters"
        self.root.mkdir()
        for name, seed in (("one", 1), ("two", 2), ("three", 3)):
            tiny_model.write_adapter(self.root / name, seed)

    def replica(self, *args):
        return Replica(self, "--adapter-root", self.root, *args)

    def write_map(self, change=None):
        """As `choral adapter catalogue` writes it, with `change` done to it."""
        subprocess.run([served.CHORAL, "adapter", "catalogue", self.root, "-m", FILES.model], check=True, stdout=subprocess.PIPE)
        path = self.root / "catalogue.json"
        catalogue = json.loads(path.read_text())
        if change:
            change(catalogue["adapters"])
            (self.root / "next.json").write_text(json.dumps(catalogue))
            (self.root / "next.json").rename(path)
        return catalogue["adapters"]

    def test_without_a_map_the_folder_is_what_it_was(self):
        replica = self.replica()
        self.assertEqual(replica.models(), ["one", "three", "two"])
        self.assertIsNone(replica.listed()["catalogue"])
        self.assertEqual((replica.adapter("one")["catalogue_digest"], replica.adapter("one")["drift"]), (None, None))
        self.assertIsNone(replica.metric("choral:catalogue_drift"))
        # One that comes while it runs counts from then on.
        self.write_map(lambda adapters: adapters.pop("three"))
        eventually(self, replica.models, ["one", "two"])
        self.assertEqual(replica.text("three"), 404)
        self.assertIn("does not name it", replica.adapter("three")["error"])

    def test_the_map_says_what_is_served_and_which_content_it_has(self):
        texts = {}
        plain = self.replica()
        for name in ("one", "two"):
            texts[name] = plain.text(name)
        plain.end()
        adapters = self.write_map(lambda adapters: adapters.update(sql={**adapters.pop("one"), "path": "one"}))
        replicas = [self.replica(), self.replica()]
        for replica in replicas:
            self.assertEqual(replica.models(), ["sql", "three", "two"])
            self.assertEqual(replica.text("sql"), texts["one"])
            self.assertEqual(replica.text("one"), 404)
            self.assertEqual(replica.adapter("sql")["digest"], adapters["sql"]["digest"])
            self.assertEqual(replica.adapter("sql")["catalogue_digest"], adapters["sql"]["digest"])
            self.assertFalse(replica.adapter("sql")["drift"])
            self.assertEqual(replica.listed()["catalogue"]["adapters"], 3)
        before = replicas[0].adapter("sql")["generation"]
        self.write_map(lambda adapters: adapters.update(sql=adapters["two"]))
        for replica in replicas:
            # It is read anew without a request, because somebody had used it.
            eventually(self, lambda r=replica: r.adapter("sql")["digest"], adapters["two"]["digest"])
            self.assertEqual(replica.text("sql"), texts["two"])
            self.assertGreater(replica.adapter("sql")["generation"], before)
        self.write_map(lambda adapters: adapters.pop("sql"))
        for replica in replicas:
            eventually(self, replica.models, ["one", "three", "two"])
            self.assertEqual(replica.text("sql"), 404)

    def test_what_one_loads_all_have(self):
        writable = "--catalogue-writable"
        first, second = self.replica(writable), self.replica(writable)
        self.assertEqual(first.models(), ["one", "three", "two"])
        wanted = {name: first.text(name) for name in ("one", "two")}
        first.load("sql", "one")
        eventually(self, first.models, ["sql"])  # from the first load on the map says what there is
        self.assertEqual(first.text("sql"), wanted["one"])
        eventually(self, lambda: second.text("sql"), wanted["one"])
        self.assertEqual(second.adapter("sql")["digest"], first.adapter("sql")["digest"])
        # A copy: what the trainer does in its folder is nobody's business.
        tiny_model.write_adapter(self.root / "one", 9)
        self.assertEqual(second.text("sql"), wanted["one"])
        self.assertFalse(second.adapter("sql")["drift"])
        self.assertEqual(second.load("sql", "two", 400)["error"]["code"], "already_exists")
        second.load("sql", "two", load_inplace=True)
        eventually(self, lambda: first.text("sql"), wanted["two"])
        eventually(self, lambda: first.adapter("sql")["digest"], second.adapter("sql")["digest"])
        # A restart has it again, without a state directory.
        first.end()
        third = self.replica(writable)
        self.assertEqual(third.text("sql"), wanted["two"])
        self.assertEqual(third.unload("sql").split()[0], "Success:")
        self.assertEqual(third.text("sql"), 404)
        eventually(self, lambda: second.text("sql"), 404)
        eventually(self, second.models, [])
        third.unload("sql", 404)

    def test_what_cannot_be_loaded_is_not_in_it(self):
        (self.root / "two" / "adapter_model.safetensors").write_bytes(b"nothing")
        replica = self.replica("--catalogue-writable")
        self.assertNotEqual(replica.server.call("POST", "/v1/load_lora_adapter", {"lora_name": "bad", "lora_path": "two"})[0], 200)
        replica.load("outside", "/etc", 403)
        self.assertEqual([p.name for p in (self.root / ".contents").iterdir() if p.is_dir()], [])
        self.assertFalse((self.root / "catalogue.json").exists())

    def test_drift_is_told(self):
        adapters = self.write_map()
        replica, other = self.replica("--state-dir", self.root.parent / "state"), self.replica()
        self.assertEqual(replica.metric("choral:catalogue_drift"), 0)
        self.assertEqual(replica.metric("choral:catalogue_adapters"), 3)
        replica.text("one")
        tiny_model.write_adapter(self.root / "one", 7)  # over what the map says
        for each in (replica, other):
            each.text("one")
            self.assertTrue(each.adapter("one")["drift"])
            self.assertNotEqual(each.adapter("one")["digest"], adapters["one"]["digest"])
            self.assertEqual(each.listed()["catalogue"]["drifted"], ["one"])
            self.assertEqual(each.metric("choral:catalogue_drift"), 1)
            eventually(self, lambda e=each: any("'one' has drifted" in line for line in e.server.said))
        self.write_map()
        for each in (replica, other):
            eventually(self, lambda e=each: e.adapter("one")["drift"], False)
        # Somebody loads another one here alone: it drifts, and a restart has the catalogue's.
        replica.load("two", "three", load_inplace=True)
        self.assertTrue(replica.adapter("two")["drift"])
        replica.end()
        again = self.replica("--state-dir", self.root.parent / "state")
        self.assertTrue(any("'two' was registered here" in line for line in again.server.said))
        again.text("two")
        self.assertEqual((again.adapter("two")["digest"], again.adapter("two")["drift"]), (adapters["two"]["digest"], False))

    def test_a_map_that_is_broken_takes_nothing_away(self):
        self.write_map()
        replica = self.replica()
        wanted = replica.text("one")
        (self.root / "catalogue.json").write_text("{")
        eventually(self, lambda: replica.listed()["catalogue"]["error"] is not None)
        self.assertGreater(replica.metric("choral:catalogue_read_failures_total"), 0)
        self.assertEqual(replica.text("one"), wanted)
        self.assertEqual(replica.models(), ["one", "three", "two"])
        (self.root / "catalogue.json").unlink()
        eventually(self, lambda: "is gone" in (replica.listed()["catalogue"]["error"] or ""))
        self.assertEqual(replica.text("one"), wanted)
        self.write_map()
        eventually(self, lambda: replica.listed()["catalogue"]["error"], None)

    def test_a_map_that_is_broken_at_the_start_is_said(self):
        (self.root / "catalogue.json").write_text("{")
        done = subprocess.run([served.CHORAL, "serve", FILES.model, "--adapter-root", self.root, "--port", "0"],
                              stderr=subprocess.PIPE, text=True, timeout=served.LONG)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("catalogue.json", done.stderr)

    def test_the_command_writes_what_the_folder_holds(self):
        first = self.write_map()
        self.assertEqual(sorted(first), ["one", "three", "two"])
        self.assertEqual(sorted(first["one"]["files"]), ["adapter_config.json", "adapter_model.safetensors"])
        (self.root / "two" / "adapter_model.safetensors").write_bytes(b"nothing")
        done = subprocess.run([served.CHORAL, "adapter", "catalogue", self.root, "-m", FILES.model], stderr=subprocess.PIPE, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("'two'", done.stderr)
        self.assertEqual(json.loads((self.root / "catalogue.json").read_text())["adapters"], first, "nothing is written then")


if __name__ == "__main__":
    served.CHORAL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
