#!/usr/bin/env python3
"""Which paths lead where, and which web pages may come through: doors_test.py CHORAL [unittest arguments]."""

import subprocess
import sys
import unittest

import served

FILES = served.Files()
USER = "user-key-0123456789"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "temperature": 0}


class PathsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = served.Server(FILES.model, "--lora", f"one={FILES.root / 'one'}", "--api-key", USER, "--access-log", "json")
        cls.headers = {"X-Api-Key": USER}

    @classmethod
    def tearDownClass(cls):
        assert cls.server.process.poll() is not None or cls.server.stop() == 0

    def call(self, method, path, body=None, **headers):
        return self.server.call(method, path, body, {**self.headers, **headers})

    def test_routes_go_with_and_without_version(self):
        for path, body in (("/chat/completions", CHAT), ("/responses", {"input": "Hi", "max_output_tokens": 3, "temperature": 0})):
            answers = [self.call("POST", prefix + path, body) for prefix in ("/v1", "")]
            self.assertEqual([status for status, _, _ in answers], [200, 200], path)
            one, other = (answer for _, _, answer in answers)
            for answer in (one, other):
                for name in ("id", "created", "created_at", "completed_at", "usage", "output"):
                    answer.pop(name, None)
            self.assertEqual(one, other)
        for path in ("/models", "/models/one", "/lora_adapters"):
            self.assertEqual(self.call("GET", "/v1" + path)[2], self.call("GET", path)[2])
        for path in ("/health", "/version", "/props", "/lora-adapters", "/tokenize"):
            for prefix in ("", "/v1"):
                method, body = ("POST", {"prompt": "x"}) if path == "/tokenize" else ("GET", None)
                self.assertEqual(self.call(method, prefix + path, body)[0], 200, prefix + path)

    def test_two_are_llama_cpps_without_version(self):
        self.assertIn("choices", self.call("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2})[2])
        self.assertIn("content", self.call("POST", "/completions", {"prompt": "x", "max_tokens": 2})[2])
        self.assertIn("data", self.call("POST", "/v1/embeddings", {"input": "x"})[2])
        self.assertEqual(self.call("POST", "/embeddings", {"input": "x"})[2][0]["index"], 0)

    def test_both_ways_ask_for_the_same_key(self):
        for path in ("/chat/completions", "/completion", "/infill", "/props", "/slots", "/models", "/load_lora_adapter", "/nothing"):
            for prefix in ("", "/v1"):
                method = "GET" if path in ("/props", "/slots", "/models") else "POST"
                self.assertEqual(self.server.call(method, prefix + path, {})[0], 401, prefix + path)
        for prefix in ("", "/v1"):
            load = {"lora_name": "x", "lora_path": "/"}
            self.assertEqual(self.call("POST", prefix + "/load_lora_adapter", load)[2]["error"]["code"], "permission_denied")
            status, _, answer = self.call("POST", prefix + "/chat/completions", "x", **{"Content-Type": "text/plain"})
            self.assertEqual((status, answer["error"]["code"]), (415, "unsupported_media_type"))
        for path in ("/health", "/v1/health", "/ping"):
            for method in ("GET", *(["POST"] if path == "/ping" else [])):
                self.assertEqual(self.server.call(method, path)[0], 200, path)
        self.assertEqual(self.server.call("GET", "/health")[2], {"status": "ok"})

    def test_nothing_is_listed_twice(self):
        paths = self.call("GET", "/openapi.json")[2]["paths"]
        twice = [path for path in paths if "/v1" + path in paths]
        self.assertEqual(sorted(twice), ["/completions", "/embeddings", "/load_lora_adapter", "/unload_lora_adapter"], "they are other routes")
        for path in ("/v1/chat/completions", "/completion", "/infill", "/embedding", "/props", "/slots", "/apply-template", "/ping", "/server_info"):
            self.assertIn(path, paths)
        self.assertIn("/v1", self.call("GET", "/openapi.json")[2]["info"]["description"])
        for path, methods in paths.items():
            for method in methods:
                self.assertTrue(paths[path][method]["summary"], path)

    def test_labels_of_metrics_are_the_routes(self):
        for path in ("/v1/chat/completions", "/chat/completions"):
            self.call("POST", path, CHAT)
        self.call("GET", "/v1/health")
        for path in ("/nothing", "/v1/nothing", "/v1/audio/speech"):
            self.call("POST", path, {})
        text = self.call("GET", "/metrics")[2]
        for path in ("/chat/completions", "/v1/health", "/nothing", "/v1/nothing", "/v1/audio/speech"):
            self.assertNotIn(f'"{path}"', text)
        for path in ("/v1/chat/completions", "/health"):
            self.assertIn(f'"{path}"', text)

    def test_methods_of_both_ways(self):
        for path in ("/chat/completions", "/v1/chat/completions", "/completions", "/infill"):
            status, headers, answer = self.call("GET", path)
            self.assertEqual((status, headers["Allow"], answer["error"]["code"]), (405, "POST", "method_not_allowed"), path)

    def test_what_is_not_served_is_told_by_name(self):
        for path, says in (("/v1/audio/transcriptions", "speech-to-text"), ("/audio/translations", "speech-to-text"),
                           ("/v1/audio/speech", "text-to-speech"), ("/v1/images/generations", "image"), ("/v1/moderations", "judge"),
                           ("/v1/vector_stores", "stored"), ("/v1/batch", "/v1/batches"), ("/v1/fine_tuning/jobs", "PEFT"),
                           ("/slots/0", "content"), ("/v1/realtime", "HTTP")):
            for method, body, kind in (("POST", b"--x\r\n\r\n--x--", "multipart/form-data; boundary=x"), ("GET", None, "application/json")):
                status, _, answer = self.call(method, path, body, **{"Content-Type": kind})
                self.assertEqual((status, answer["error"]["code"]), (404, "not_served"), path)
                self.assertIn(path + " is not served: ", answer["error"]["message"])
                self.assertIn(says, answer["error"]["message"])
        for path in ("/v1/nothing", "/v1", "/v1/", "/v1/v1/models", "/audio", "/filesystem"):
            self.assertEqual(self.call("GET", path)[2]["error"]["code"], "not_found", path)

    def test_as_many_tokens_as_fit(self):
        for path, body in (("/v1/completions", {"prompt": "Hello"}), ("/v1/chat/completions", {"messages": CHAT["messages"]})):
            for field in ("max_tokens", "n_predict", *(["max_completion_tokens"] if "messages" in body else [])):
                got = self.call("POST", path, {**body, field: -1, "ignore_eos": True, "temperature": 0})[2]
                self.assertEqual((got["usage"]["total_tokens"], got["choices"][0]["finish_reason"]), (256, "length"), field)
        for field, value in (("max_tokens", -2), ("max_completion_tokens", -2), ("max_completion_tokens", 0)):
            self.assertEqual(self.call("POST", "/v1/chat/completions", {**CHAT, field: value})[0], 400, (field, value))
        cut = self.call("POST", "/v1/completions", {"prompt": "x" * 500, "truncate_prompt_tokens": -1, "max_tokens": -1})
        self.assertEqual((cut[0], cut[2]["usage"]["prompt_tokens"], cut[2]["usage"]["completion_tokens"]), (200, 255, 1))


class PagesTest(unittest.TestCase):
    """What browsers ask before they let a page of another site talk to a server (CORS)."""

    APP, OTHER = "https://app.example.com", "https://evil.example"

    def start(self, *args):
        server = served.Server(FILES.model, *args)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def preflight(self, server, origin, path="/v1/chat/completions", wants="authorization,content-type", method="POST"):
        headers = {"Origin": origin, "Access-Control-Request-Method": method}
        if wants:
            headers["Access-Control-Request-Headers"] = wants
        return server.call("OPTIONS", path, headers=headers)

    def cors(self, headers):
        return {name: value for name, value in headers.items() if name.startswith("Access-Control-")}

    def test_no_page_unless_it_is_named(self):
        server = self.start()
        status, headers, answer = self.preflight(server, self.APP)
        self.assertEqual((status, answer["error"]["code"], self.cors(headers)), (403, "origin_not_allowed", {}))
        self.assertIn("--cors-origins", answer["error"]["message"])
        status, headers, _ = server.call("POST", "/v1/chat/completions", CHAT, {"Origin": "http://localhost:3000"})
        self.assertEqual((status, self.cors(headers), headers["Vary"]), (200, {}, None))

    def test_a_page_that_is_named(self):
        server = self.start("--cors-origins", f"{self.APP},http://10.0.0.7:8080", "--api-key", USER)
        for origin in (self.APP, "http://10.0.0.7:8080"):
            status, headers, text = self.preflight(server, origin)
            self.assertEqual((status, text), (204, ""))
            self.assertEqual(headers["Access-Control-Allow-Origin"], origin)
            self.assertIn("POST", headers["Access-Control-Allow-Methods"])
            self.assertEqual(headers["Access-Control-Allow-Headers"], "authorization,content-type")
            self.assertEqual(headers["Vary"], "Origin")
            self.assertNotIn("Access-Control-Allow-Credentials", headers)
        self.assertIn("Authorization", self.preflight(server, self.APP, wants=None)[1]["Access-Control-Allow-Headers"])
        self.assertNotIn("<", self.preflight(server, self.APP, wants="x<y")[1]["Access-Control-Allow-Headers"])
        self.assertEqual(self.preflight(server, self.APP, path="/nothing")[0], 204, "paths are no secret, and are none told")
        asked = {"Origin": self.APP, "Authorization": f"Bearer {USER}"}
        for path in ("/v1/chat/completions", "/chat/completions"):
            status, headers, _ = server.call("POST", path, CHAT, asked)
            self.assertEqual((status, headers["Access-Control-Allow-Origin"], headers["Vary"]), (200, self.APP, "Origin"))
            self.assertIn("X-Request-Id", headers["Access-Control-Expose-Headers"])
        status, headers, _ = server.call("POST", "/v1/chat/completions", {**CHAT, "stream": True}, asked)
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, self.APP))
        for body, key, wanted in (({**CHAT, "n": 0}, USER, 400), (CHAT, "wrong", 401)):
            status, headers, _ = server.call("POST", "/v1/chat/completions", body, {**asked, "Authorization": f"Bearer {key}"})
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (wanted, self.APP), "a page can read what is wrong")

    def test_other_pages_get_nothing(self):
        server = self.start("--cors-origins", self.APP)
        for origin in (self.OTHER, "null", "http://app.example.com", self.APP + ":444", self.APP + ".evil.example", "https://app.example.com@evil.example"):
            for status, headers, answer in (self.preflight(server, origin), server.call("POST", "/v1/chat/completions", CHAT, {"Origin": origin})):
                self.assertEqual((status, answer["error"]["code"], self.cors(headers)), (403, "origin_not_allowed", {}), origin)
        self.assertEqual(server.call("POST", "/v1/chat/completions", CHAT)[1]["Vary"], "Origin", "caches keep them apart")

    def test_no_page_changes_adapters_by_being_on_this_machine(self):
        server = self.start("--cors-origins", "*")
        load = {"lora_name": "late", "lora_path": str(FILES.root / "one")}
        self.assertEqual(server.call("POST", "/v1/load_lora_adapter", load, {"Origin": self.OTHER})[0], 403)
        self.assertEqual(server.call("POST", "/v1/load_lora_adapter", load)[0], 200)
        status, headers, _ = server.call("POST", "/v1/chat/completions", CHAT, {"Origin": self.OTHER})
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, "*"))
        self.assertEqual(server.call("GET", "/v1/models", headers={"Host": "evil.example"})[2]["error"]["code"], "host_not_allowed")

    def test_pages_of_this_machine(self):
        server = self.start("--cors-origins", "localhost")
        for origin in ("http://localhost:5173", "http://127.0.0.1:3000", "https://app.localhost"):
            self.assertEqual(self.preflight(server, origin)[1]["Access-Control-Allow-Origin"], origin)
        self.assertEqual(self.preflight(server, "http://localhost.evil.example")[0], 403)

    def test_what_is_no_preflight(self):
        server = self.start("--cors-origins", self.APP)
        status, headers, answer = server.call("OPTIONS", "/v1/chat/completions", headers={"Origin": self.APP})
        self.assertEqual((status, headers["Allow"], answer["error"]["code"]), (405, "POST", "method_not_allowed"))

    def test_origins_are_checked_at_the_start(self):
        for wrong in ("app.example.com", "https://", "https://a b", "://x"):
            done = subprocess.run([served.CHORAL, "serve", str(FILES.model), "--port", "0", "--cors-origins", wrong],
                                  capture_output=True, text=True, timeout=served.LONG)
            self.assertEqual(done.returncode, 2, wrong)
            self.assertIn("--cors-origins", done.stderr)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
