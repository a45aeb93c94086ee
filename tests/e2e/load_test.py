#!/usr/bin/env python3
"""`choral load` from the outside, against a server that is Python's own. load_test.py CHORAL [unittest arguments]."""

import collections
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import program


class Server(http.server.ThreadingHTTPServer):
    """Answers completions; `refuse` models get 429, `hang` ones nothing."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = collections.Counter()
        self.bodies = []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, json.dumps({"data": [{"id": "tiny"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked[body["model"]] += 1
        self.server.bodies.append((self.path, dict(self.headers), body))
        if body["model"] == "hang":
            time.sleep(300)
        if body["model"] == "refuse":
            return self.answer(429, json.dumps({"error": {"message": "the queue is full"}}).encode())
        events = [{"choices": [{"index": 0, "text": " a", "finish_reason": None}]}] * 3
        events += [{"choices": [{"index": 0, "text": "", "finish_reason": "length"}]},
                   {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 3}}]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.answer(200, text.encode(), "text/event-stream")


class LoadTest(program.ProgramTest):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def load(self, *args, **kwargs):
        return self.run_ok("load", "--url", self.server.url, *args, **kwargs)

    def test_json(self):
        report = json.loads(self.load("--requests", 12, "--concurrency", 3, "--json", "-q").stdout)
        self.assertEqual((report["model"], report["sent"], report["finished"], report["errors"]), ("tiny", 12, 12, {}))
        self.assertEqual((report["prompt_tokens"], report["output_tokens"], report["counted_pieces"]), (120, 36, False))
        for name in ("time_to_first_token", "inter_token_latency", "end_to_end"):
            times = report[name]
            self.assertTrue(0 <= times["p50_ms"] <= times["p90_ms"] <= times["p99_ms"] <= times["max_ms"], times)
        self.assertEqual(report["end_to_end"]["count"], 12)

    def test_adapters_and_errors(self):
        done = self.load("--model", "tiny", "--adapters", "base,sql,refuse", "--requests", 9, "--api-key", "k", "--chat", "--max-tokens", 5)
        self.assertEqual(self.server.asked, {"tiny": 3, "sql": 3, "refuse": 3})
        for path, headers, body in self.server.bodies:
            self.assertEqual((path, headers["Authorization"]), ("/v1/chat/completions", "Bearer k"))
            self.assertEqual((body["max_tokens"], body["stream"], body["ignore_eos"]), (5, True, True))
        self.assertIn("6 of 9 requests answered", done.stdout)
        self.assertRegex(done.stdout, r"3  429 +the queue is full")

    def test_a_key_from_the_environment(self):
        self.load("--requests", 1, env={"OPENAI_API_KEY": "from-there"})
        self.assertEqual(self.server.bodies[0][1]["Authorization"], "Bearer from-there")

    def test_rate_and_duration(self):
        report = json.loads(self.load("--rate", 50, "--duration", 0.5, "--json").stdout)
        self.assertGreater(report["finished"], 0)
        self.assertEqual(report["finished"], report["sent"])

    def test_nothing_answered(self):
        self.run_fails(8, "load", "--url", self.server.url, "--model", "refuse", "--requests", 2, says=["no request was answered", "429"])
        self.run_fails(8, "load", "--url", "http://127.0.0.1:1", "--requests", 1, says=["no connection", "127.0.0.1:1"])
        for scheme in ("http", "https"):
            self.run_fails(3, "load", "--url", f"{scheme}://no-such-host.invalid", says=["no-such-host.invalid"])
        plain = self.server.url.replace("http://", "https://")
        self.run_fails(8, "load", "--url", plain, says=["no connection", plain])

    def test_wrong_usage(self):
        for args, says in ((["--url", "ftp://x"], "this is not HTTP"), (["--concurrency", 0], "--concurrency 0"), (["--skew", "odd"], "in-turn"),
                           (["--requests", 0], "no end"), (["--rate", "-1"], "--rate")):
            self.run_fails(2, "load", *args, says=[says])

    def test_ctrl_c_prints_what_there_is(self):
        process = subprocess.Popen([program.CHORAL, "load", "--url", self.server.url, "--model", "hang", "--concurrency", "2", "--json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 60
        while self.server.asked["hang"] < 2 and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        report = json.loads(out)
        self.assertEqual(process.returncode, 9, err)
        self.assertTrue(report["stopped"])
        self.assertEqual((report["sent"], report["errors"]), (2, {"stopped": 2}), err)


if __name__ == "__main__":
    program.CHORAL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
