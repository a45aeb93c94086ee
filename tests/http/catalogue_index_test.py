#!/usr/bin/env python3
"""One catalogue of adapters for several servers, behind a URL: catalogue_index_test.py CHORAL [unittest arguments]."""

import hashlib
import http.server
import json
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

import served
from catalogue_test import FILES, Replica, eventually
from served import tiny_model

TOKEN = "token-0123456789"


class Shelf:
    """A web server of a folder with a catalogue: ETags, a token, and what a test wants to go wrong."""

    def __init__(self, folder, context=None):
        shelf = self
        self.folder = folder
        self.token = ""
        self.broken = {}  # what is sent in place of a path's file; None: 500
        self.asked = []  # (path, status)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.removeprefix("/shelf/")
                status, body, headers = shelf.answer(path, self.headers)
                shelf.asked.append((path, status))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 304:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.server.server_port}/shelf/catalogue.json"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path, headers):
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            return 401, b"no", {}
        if path in self.broken:
            return (500, b"", {}) if self.broken[path] is None else (200, self.broken[path], {})
        file = self.folder / path
        if not file.is_file():
            return 404, b"", {}
        body = file.read_bytes()
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        if headers.get("If-None-Match") == etag:
            return 304, b"", {"ETag": etag}
        return 200, body, {"ETag": etag}

    def count(self, status, path="catalogue.json"):
        return self.asked.count((path, status))

    def end(self):
        self.server.shutdown()
        self.server.server_close()


class IndexTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.shelf_folder = self.folder / "shelf"
        for name, seed in (("one", 1), ("two", 2)):
            tiny_model.write_adapter(self.shelf_folder / name, seed)
        self.write_index()
        self.shelf = self.open_shelf()
        self.states = 0

    def open_shelf(self, context=None):
        shelf = Shelf(self.shelf_folder, context)
        self.addCleanup(shelf.end)
        return shelf

    def write_index(self, change=None):
        subprocess.run([served.CHORAL, "adapter", "catalogue", self.shelf_folder, "-m", FILES.model], check=True, stdout=subprocess.PIPE)
        path = self.shelf_folder / "catalogue.json"
        index = json.loads(path.read_text())
        if change:
            change(index["adapters"])
            path.write_text(json.dumps(index))
        return index["adapters"]

    def replica(self, *args, state=None):
        if state is None:
            self.states += 1
            state = f"state-{self.states}"
        return Replica(self, "--adapter-catalogue", self.shelf.url, "--state-dir", self.folder / state, *args)

    def error(self, replica):
        return replica.listed()["catalogue"]["error"]

    def test_replicas_follow_the_index(self):
        plain = Replica(self, "--adapter-root", FILES.root)
        wanted = {name: plain.text(name) for name in ("one", "two")}
        plain.end()
        adapters = self.write_index()
        replicas = [self.replica(), self.replica()]
        for replica in replicas:
            eventually(self, replica.models, ["one", "two"])
            self.assertEqual(replica.text("one"), wanted["one"])
            self.assertEqual(replica.adapter("one")["digest"], adapters["one"]["digest"])
            self.assertFalse(replica.adapter("one")["drift"])
            self.assertIsNone(self.error(replica))
        eventually(self, lambda: self.shelf.count(304) > 1)
        asked = len([path for path, _ in self.shelf.asked if path != "catalogue.json"])
        self.assertEqual(asked, 2 * 4, "a file is fetched twice")
        self.write_index(lambda a: a.update(one={**a["two"], "path": "two"}, sql={**a.pop("two"), "path": "two"}))
        for replica in replicas:
            eventually(self, replica.models, ["one", "sql"])
            eventually(self, lambda r=replica: r.text("one"), wanted["two"])
            self.assertEqual(replica.text("two"), 404)
        asked = len([path for path, _ in self.shelf.asked if path != "catalogue.json"])
        self.assertEqual(asked, 2 * 4, "what is here under another name is fetched again")

    def test_an_index_that_is_away_takes_nothing_away(self):
        replica = self.replica(state="kept")
        eventually(self, replica.models, ["one", "two"])
        wanted = replica.text("one")
        for broken in (None, b"{", b"x" * (17 << 20)):
            self.shelf.broken = {"catalogue.json": broken}
            eventually(self, lambda: self.error(replica) is not None)
            self.assertEqual(replica.text("one"), wanted)
            self.assertGreater(replica.metric("choral:catalogue_read_failures_total"), 0)
            self.shelf.broken = {}
            eventually(self, lambda: self.error(replica), None)
        self.assertEqual(replica.models(), ["one", "two"])
        replica.end()
        # Nor does it from one that starts meanwhile.
        self.shelf.broken = {"catalogue.json": None}
        again = self.replica(state="kept")
        self.assertEqual(again.text("one"), wanted)
        eventually(self, lambda: self.error(again) is not None)
        fresh = self.replica()
        self.assertEqual(fresh.models(), [])
        self.assertEqual(fresh.text("one"), 404)
        self.shelf.broken = {}
        eventually(self, fresh.models, ["one", "two"])

    def test_what_does_not_keep_its_word_is_not_served(self):
        weights = self.shelf_folder / "two" / "adapter_model.safetensors"
        path = "two/adapter_model.safetensors"

        def spoiled():
            return weights.read_bytes()[:-1] + b"x"

        self.shelf.broken = {path: spoiled()}
        replica = self.replica()
        eventually(self, replica.models, ["one"])
        eventually(self, lambda: "SHA-256" in (self.error(replica) or ""))
        self.assertEqual(replica.text("two"), 404)
        eventually(self, lambda: (replica.adapter("two") or {}).get("state"), "failed")
        self.shelf.broken = {}
        eventually(self, replica.models, ["one", "two"])
        # A new content that cannot be had leaves the one before.
        wanted = replica.text("two")
        for seed, (spoil, says) in enumerate(((spoiled, "SHA-256"), (lambda: weights.read_bytes() + b"x", "more than"),
                                              (lambda: weights.read_bytes()[:-1], "bytes"), (lambda: None, "500"))):
            tiny_model.write_adapter(self.shelf_folder / "two", 10 + seed)
            self.shelf.broken = {path: spoil()}
            adapters = self.write_index()
            eventually(self, lambda s=says: s in (self.error(replica) or ""))
            self.assertEqual(replica.text("two"), wanted)
            self.assertTrue(replica.adapter("two")["drift"])
        self.shelf.broken = {}
        eventually(self, lambda: replica.adapter("two")["digest"], adapters["two"]["digest"])
        self.assertFalse(replica.adapter("two")["drift"])

    def test_no_more_than_there_is_room_for(self):
        bytes_of_one = sum(f.stat().st_size for f in (self.shelf_folder / "one").iterdir())
        replica = self.replica("--adapter-cache", bytes_of_one + 100)
        eventually(self, replica.models, ["one"])
        eventually(self, lambda: "--adapter-cache" in (self.error(replica) or ""))
        self.assertEqual(self.shelf.count(200, "two/adapter_model.safetensors"), 0)

    def test_a_token_goes_with_each_request(self):
        self.shelf.token = TOKEN
        replica = self.replica()
        eventually(self, lambda: "--adapter-catalogue-token" in (self.error(replica) or ""))
        by_flag = self.replica("--adapter-catalogue-token", TOKEN)
        eventually(self, by_flag.models, ["one", "two"])
        file = self.folder / "token"
        file.write_text(TOKEN + "\n")
        by_file = self.replica("--adapter-catalogue-token-file", file)
        eventually(self, by_file.models, ["one", "two"])
        self.shelf.token = TOKEN + "-new"
        eventually(self, lambda: self.error(by_file) is not None)
        file.write_text(TOKEN + "-new")
        eventually(self, lambda: self.error(by_file), None)
        self.assertNotIn(TOKEN, "".join(by_flag.server.said + by_file.server.said))

    def test_https(self):
        if not shutil.which("openssl"):
            self.skipTest("there is no openssl to make a certificate with")
        certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=shelf", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                       check=True, stderr=subprocess.PIPE)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.shelf = self.open_shelf(context)
        trusting = self.replica("--adapter-catalogue-ca", certificate)
        eventually(self, trusting.models, ["one", "two"])
        replica = self.replica()
        eventually(self, lambda: self.error(replica) is not None)
        self.assertEqual(replica.models(), [], "a certificate that nobody signed is trusted")

    def test_what_is_no_index_is_refused_at_the_start(self):
        def refused(*args):
            done = subprocess.run([served.CHORAL, "serve", FILES.model, *map(str, args)], stderr=subprocess.PIPE, text=True, timeout=served.LONG)
            self.assertNotEqual(done.returncode, 0)
            return done.stderr
        state = ("--state-dir", self.folder / "state")
        for url in ("ftp://x/catalogue.json", "http://x", "http://x/", "http://me:secret@x/i.json", "http://x/i.json?key=1", "catalogue.json"):
            self.assertIn("--adapter-catalogue", refused("--adapter-catalogue", url, *state))
        self.assertIn("--state-dir", refused("--adapter-catalogue", self.shelf.url))
        self.assertIn("one of them", refused("--adapter-catalogue", self.shelf.url, "--adapter-root", FILES.root, *state))
        self.assertIn("--adapter-root", refused("--catalogue-writable"))


if __name__ == "__main__":
    served.CHORAL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
