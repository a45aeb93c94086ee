#!/usr/bin/env python3
"""Who may ask, what keys learn of each other, and what the log has of it: access_test.py CHORAL [unittest arguments]."""

import contextlib
import datetime
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import unittest

import served

FILES = served.Files(context=4096)
SHORT = {"prompt": "Hello", "max_tokens": 3}
USER, ADMIN = "user-key-0123456789", "admin-key-0123456789"


class AccessTest(unittest.TestCase):
    def start(self, *args):
        server = served.Server(FILES.model, *args)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def ask(self, server, key=None, **body):
        return server.call("POST", "/v1/completions", {**SHORT, **body}, {"X-Api-Key": key} if key else {})

    def key_file(self, name):
        path = FILES.folder / name
        path.write_text(f"alice:{hashlib.sha256(USER.encode()).hexdigest()}\nops:{hashlib.sha256(ADMIN.encode()).hexdigest()} admin\n")
        os.chmod(path, 0o600)
        return path

    # --- who may ask ---

    def test_a_page_with_a_name_of_its_own_gets_nothing(self):
        """DNS rebinding: to a browser evil.example and 127.0.0.1 are one site then."""
        server = self.start()
        for path in ("/health", "/v1/models", "/metrics"):
            status, _, answer = server.call("GET", path, headers={"Host": f"evil.example:{server.port}"})
            self.assertEqual((status, answer["error"]["code"]), (403, "host_not_allowed"), path)
        self.assertIn("--allowed-hosts", answer["error"]["message"])
        body = {"lora_name": "x", "lora_path": "/"}
        self.assertEqual(server.call("POST", "/v1/load_lora_adapter", body, {"Host": "evil.example"})[2]["error"]["code"], "host_not_allowed")
        for host in ("localhost", f"LOCALHOST:{server.port}", "127.0.0.1", "[::1]"):
            self.assertEqual(server.call("GET", "/v1/models", headers={"Host": host})[0], 200, host)

    def test_names_that_requests_may_use(self):
        server = self.start("--allowed-hosts", "api.example.com,*.example.org")
        for host, wanted in (("api.example.com", 200), ("a.example.org:80", 200), ("localhost", 200), ("example.com", 403)):
            self.assertEqual(server.call("GET", "/v1/models", headers={"Host": host})[0], wanted, host)
        self.assertEqual(self.start("--allowed-hosts", "*").call("GET", "/v1/models", headers={"Host": "evil.example"})[0], 200)
        done = subprocess.run([served.CHORAL, "serve", str(FILES.model), "--port", "0", "--allowed-hosts", "http://x"],
                              capture_output=True, text=True, timeout=served.LONG)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--allowed-hosts", done.stderr)

    def test_pages_of_other_sites_get_nothing(self):
        """Any page may post to 127.0.0.1, and a body of text/plain needs no leave."""
        server = self.start("--api-key", USER)
        for path, body in (("/health", None), ("/v1/models", None), ("/v1/completions", SHORT), ("/nothing", None)):
            for origin in ("http://evil.example", "null"):
                status, _, answer = server.call("POST" if body else "GET", path, body, {"Origin": origin, "X-Api-Key": USER})
                self.assertEqual((status, answer["error"]["code"]), (403, "origin_not_allowed"), (path, origin))
        self.assertIn("--allowed-hosts", answer["error"]["message"])
        for origin in ("http://localhost:3000", f"http://127.0.0.1:{server.port}"):
            self.assertEqual(server.call("POST", "/v1/completions", SHORT, {"Origin": origin, "X-Api-Key": USER})[0], 200, origin)
        other = self.start("--allowed-hosts", "chat.example.com")
        self.assertEqual(other.call("POST", "/v1/completions", SHORT, {"Origin": "https://chat.example.com"})[0], 200)

    def test_bodies_say_that_they_are_json(self):
        server = self.start()
        body = json.dumps(SHORT)
        for kind in ("application/json", "Application/JSON; charset=utf-8", "application/json;charset=utf-8", "application/vnd.x+json"):
            self.assertEqual(server.call("POST", "/v1/completions", body, {"Content-Type": kind})[0], 200, kind)
        for path in ("/v1/completions", "/tokenize", "/v1/load_lora_adapter"):
            for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonx", "text/plain; application/json"):
                status, _, answer = server.call("POST", path, body, {"Content-Type": kind})
                self.assertEqual((status, answer["error"]["code"]), (415, "unsupported_media_type"), (path, kind))
        self.assertIn("-H 'Content-Type: application/json'", answer["error"]["message"])
        with contextlib.closing(server.connection()) as connection:
            connection.request("POST", "/v1/completions", body=body)
            answer = connection.getresponse()
            self.assertEqual((answer.status, b"has no Content-Type" in answer.read()), (415, True))

    def test_who_comes_through_a_proxy_is_not_on_this_machine(self):
        """Without keys whoever is on this machine changes adapters; through its proxy comes all the world."""
        load = {"lora_name": "late", "lora_path": str(FILES.root / "one")}
        server = self.start()
        for header in ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"):
            for path in ("/v1/load_lora_adapter", "/v1/pin_lora_adapter", "/lora-adapters"):
                status, _, answer = server.call("POST", path, load, {header: "127.0.0.1"})
                self.assertEqual((status, answer["error"]["code"]), (403, "permission_denied"), (header, path))
            self.assertEqual(server.call("POST", "/v1/completions", SHORT, {header: "127.0.0.1"})[0], 200)
        self.assertIn("--admin-api-key", answer["error"]["message"])
        self.assertEqual(server.call("POST", "/v1/load_lora_adapter", load)[0], 200)
        told = self.start("--trusted-proxies", "127.0.0.0/8,unix")
        self.assertEqual(told.call("POST", "/v1/load_lora_adapter", load)[0], 403, "its proxies say nothing of themselves")
        self.assertEqual(told.call("GET", "/version", headers={"X-Forwarded-For": "192.0.2.1, 203.0.113.7"})[0], 200)
        told.stop()
        self.assertTrue(any("203.0.113.7 GET /version 200" in line for line in told.said), told.said)
        with_keys = self.start("--admin-api-key", ADMIN)
        headers = {"X-Api-Key": ADMIN, "X-Forwarded-For": "203.0.113.7"}
        self.assertEqual(with_keys.call("POST", "/v1/load_lora_adapter", load, headers)[0], 200)
        done = subprocess.run([served.CHORAL, "serve", str(FILES.model), "--port", "0", "--trusted-proxies", "10.0.0.0/33"],
                              capture_output=True, text=True, timeout=served.LONG)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--trusted-proxies", done.stderr)

    # --- what keys learn of each other ---

    def test_no_key_is_told_what_another_has_asked(self):
        prompt = "The secret number is 481516 and nobody else may know it. " * 4

        def cached(server, key, **body):
            status, _, answer = self.ask(server, key, prompt=prompt, **body)
            self.assertEqual(status, 200)
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        server = self.start("--api-key", USER, "--admin-api-key", ADMIN)
        self.assertEqual(cached(server, USER), 0)
        own = cached(server, USER)
        self.assertGreater(own, 0)
        self.assertEqual(cached(server, ADMIN), 0)
        self.assertEqual(cached(server, USER, cache_salt="a"), 0)
        self.assertEqual(cached(server, ADMIN, cache_salt="a"), 0, "a salt that can be guessed")
        self.assertEqual(cached(server, USER, cache_salt="a"), own)
        server = self.start("--api-key", USER, "--admin-api-key", ADMIN, "--share-prefixes")
        self.assertEqual((cached(server, USER), cached(server, ADMIN)), (0, own))
        server = self.start()
        self.assertEqual((cached(server, None), cached(server, None)), (0, own))

    # --- the access log ---

    def logged(self, server):
        return [json.loads(line) for line in server.said if line.startswith('{"time"')]

    def test_the_access_log_says_who_used_what(self):
        server = self.start("--access-log", "json", "--api-key-file", self.key_file("who"), "--adapter-root", FILES.root)
        secret = "a secret that nobody logs"

        def ask(name, wanted, body, key=USER, path="/v1/completions", **headers):
            body = body if isinstance(body, str) else {**(SHORT if path == "/v1/completions" else {}), **body}
            status, _, answer = server.call("POST", path, body, {"X-Api-Key": key, "X-Request-Id": name, **headers})
            self.assertEqual(status, wanted, name)
            return answer

        began = time.time()
        usage = ask("first", 200, {"model": "one", "prompt": secret, "ignore_eos": True})["usage"]
        ask("mixed", 200, {"lora": [{"name": "two", "scale": 0.5}], "stream": True, "ignore_eos": True})
        ask("unknown", 404, {"model": "nobody"})
        ask("prompt", 400, {"prompt": {"a": secret}})
        ask("n", 400, {"n": 0})
        ask("long", 400, {"prompt": secret * 1000})
        ask("broken", 400, '{"prompt": "' + secret)
        ask("form", 415, "x", **{"Content-Type": "text/plain"})
        load = {"lora_name": "late", "lora_path": "one"}
        ask("refused", 403, load, path="/v1/load_lora_adapter")
        for what in ("load", "pin", "unload"):
            ask(what, 200, load if what == "load" else {"lora_name": "late"}, ADMIN, f"/v1/{what}_lora_adapter")
        server.stop()
        self.assertNotIn("secret", "".join(server.said))
        logged = {line["request_id"]: line for line in self.logged(server)}
        first = logged["first"]
        self.assertEqual((first["key"], first["model"], first["adapters"]), ("alice", "one", ["one"]))
        self.assertEqual([first[name] for name in ("prompt_tokens", "completion_tokens")],
                         [usage[name] for name in ("prompt_tokens", "completion_tokens")])
        self.assertEqual(first["cached_tokens"], usage["prompt_tokens_details"]["cached_tokens"])
        self.assertNotIn("reason", first)
        when = datetime.datetime.fromisoformat(first["time"].replace("Z", "+00:00")).timestamp()
        self.assertTrue(began - 1 <= when <= time.time() + 1, first["time"])
        mixed = logged["mixed"]
        self.assertEqual((mixed["model"], mixed["adapters"], mixed["completion_tokens"]), ("tiny", ["two"], 3))
        self.assertEqual((logged["unknown"]["status"], logged["unknown"]["model"]), (404, "nobody"))
        for name, reason in (("unknown", "model_not_found: the model 'nobody' does not exist"), ("prompt", "'prompt'"), ("n", "n "),
                             ("long", "tokens"), ("broken", "not JSON"), ("form", "unsupported_media_type: "),
                             ("refused", "permission_denied: ")):
            self.assertIn(reason, logged[name]["reason"], name)
            self.assertEqual(logged[name]["key"], "alice", name)
        for what in ("load", "pin", "unload"):
            self.assertEqual((logged[what]["key"], logged[what]["adapters"]), ("ops", ["late"]), what)
            self.assertEqual(logged[what]["path"], f"/v1/{what}_lora_adapter")

    def test_the_access_log_says_who_left(self):
        server = self.start("--access-log", "json")
        connection = server.connection()
        connection.request("POST", "/v1/completions", headers=served.JSON,
                           body=json.dumps({"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": True}))
        connection.getresponse().readline()
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        end = time.monotonic() + served.LONG
        while not self.logged(server) and time.monotonic() < end:
            time.sleep(0.01)
        (left,) = self.logged(server)
        self.assertEqual(left["reason"].split(":")[0], "cancelled")
        self.assertGreater(left["completion_tokens"], 0)

    def test_the_access_log(self):
        server = self.start("--access-log", "json", "--api-key", USER)
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        ids = {"X-Request-Id": "mine", "traceparent": parent}
        status, headers, answer = server.call("POST", "/v1/completions", SHORT, {"X-Api-Key": USER, **ids})
        self.assertEqual((status, answer["id"], headers["X-Request-Id"]), (200, "cmpl-mine", "mine"))
        self.assertRegex(headers["traceparent"], "^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01$")
        _, refused, _ = self.ask(server)
        self.assertRegex(refused["X-Request-Id"], "^[0-9a-f]{24}$")
        server.stop()
        lines = self.logged(server)
        self.assertEqual([(l["method"], l["path"], l["status"]) for l in lines], [("POST", "/v1/completions", 200), ("POST", "/v1/completions", 401)])
        span = headers["traceparent"].split("-")[2]
        traced = (lines[0]["request_id"], lines[0]["trace_id"], lines[0]["span_id"], lines[0]["parent_span_id"])
        self.assertEqual(traced, ("mine", *parent.split("-")[1:2], span, parent.split("-")[2]))
        self.assertEqual(lines[1]["request_id"], refused["X-Request-Id"])
        self.assertNotIn("trace_id", lines[1])
        self.assertNotIn("Hello", "".join(server.said[-3:]))


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
