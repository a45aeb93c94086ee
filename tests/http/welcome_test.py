#!/usr/bin/env python3
"""The lines that a server says to try work as they stand: welcome_test.py CHORAL [unittest arguments]. They are run by a shell."""

import json
import os
import shutil
import subprocess
import sys
import time
import unittest

import served
from guard_test import USER, make_certificate

FILES = served.Files(context=4096)
PYTHON = os.environ.get("CHORAL_CLIENTS_PYTHON", "")


class WelcomeTest(unittest.TestCase):
    def lines_of(self, *args, model=FILES.model):
        """What the server says to try, and its first line."""
        server = served.Server(model, *args)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        end = time.monotonic() + served.LONG
        while time.monotonic() < end:
            said = "".join(server.said).replace("\\\n", " ")
            if "choral: try" in said and (lines := said.split("choral: try")[1].splitlines())[-1:] and len(lines) > 2:
                if any("python3" in line for line in lines) or "CERT" in lines[0]:
                    return lines[0], [line.strip() for line in lines[1:]]
            time.sleep(0.02)
        raise AssertionError("".join(server.said))

    def check(self, lines, route, **env):
        self.assertIn(route, lines[1])
        for line in lines:
            if line.startswith("python3") and not PYTHON:
                continue  # without the client there is nothing to run it with
            line = line.replace("python3", PYTHON, 1) if line.startswith("python3") else line.replace("curl", "curl -sS --fail-with-body", 1)
            done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=served.LONG,
                                  env={**{k: v for k, v in os.environ.items() if k != "OPENAI_API_KEY"}, **env})
            self.assertEqual(done.returncode, 0, f"{line}: {done.stdout}{done.stderr}")
            if line.startswith("curl"):
                self.assertIn(json.loads(done.stdout)["object"], ("list", "chat.completion", "text_completion"))

    def test_as_it_is(self):
        first, lines = self.lines_of()
        self.assertEqual(first, "")
        self.assertEqual(len(lines), 3)
        self.check(lines, "/v1/chat/completions")

    def test_with_keys(self):
        for flags in (("--api-key", USER), ("--admin-api-key", USER)):
            first, lines = self.lines_of(*flags)
            self.assertIn("OPENAI_API_KEY", first)
            self.assertNotIn(USER, first + "".join(lines), "no key is shown")
            self.check(lines, "/v1/chat/completions", OPENAI_API_KEY=USER)

    def test_with_tls_of_another_name(self):
        make_certificate(FILES.folder, "api.example.com")
        _, lines = self.lines_of("--ssl-certfile", FILES.folder / "cert.pem", "--ssl-keyfile", FILES.folder / "key.pem", "--api-key", USER)
        self.assertEqual(len(lines), 3)
        self.check(lines, "/v1/chat/completions", OPENAI_API_KEY=USER)

    def test_where_clients_show_a_certificate(self):
        make_certificate(FILES.folder, "localhost")
        cert, key = FILES.folder / "cert.pem", FILES.folder / "key.pem"
        first, lines = self.lines_of("--ssl-certfile", cert, "--ssl-keyfile", key, "--ssl-ca-certs", cert)
        self.assertIn("in CERT", first)
        self.check(lines, "/v1/chat/completions", CERT=str(cert), KEY=str(key))

    def test_without_a_chat_template(self):
        self.check(self.lines_of(model=FILES.plain_model())[1], "/v1/completions")

    def test_under_other_names(self):
        self.check(self.lines_of("--served-model-name", "it's a \"name\"")[1], "it'\\''s")
        self.check(self.lines_of("--lora", f"one={FILES.root / 'one'}")[1], '"model": "one"')

    def test_where_it_listens_everywhere(self):
        _, lines = self.lines_of("--host", "0.0.0.0", "--allowed-hosts", "api.example.com", "--api-key", USER)
        self.assertIn("http://127.0.0.1:", lines[0])
        self.check(lines, "/v1/chat/completions", OPENAI_API_KEY=USER)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    if not shutil.which("curl"):
        print("skipped: there is no curl")
        sys.exit(77)
    unittest.main()
