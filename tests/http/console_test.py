#!/usr/bin/env python3
"""The console's files as the server gives them, and who may use what from that page: console_test.py CHORAL [unittest arguments]."""

import contextlib
import gzip
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import served

FILES = served.Files(context=4096)
SERVER = None
KEY = "user-key-0123456789"
MOST_FIRST_BYTES = 250_000  # that a browser loads before it shows something


def setUpModule():
    global SERVER
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root)


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)


def get(path, server=None, method="GET", **headers):
    """The status, the headers and the bytes; no Accept-Encoding unless one is given."""
    with contextlib.closing((server or SERVER).connection()) as connection:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def first_files():
    page = get("/")[2].decode()
    return ["/" + name for name in re.findall(r'(?:src|href)="(console/[^"]+)"', page)]


class ConsoleFilesTest(unittest.TestCase):
    def test_the_page(self):
        status, headers, body = get("/")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        self.assertIn(b"<!doctype html>", body)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertNotIn("unsafe", headers["Content-Security-Policy"])
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(headers["X-Frame-Options"], "DENY")
        self.assertEqual(get("/", method="HEAD")[2], b"")
        self.assertEqual(SERVER.call("POST", "/", {})[0], 405)

    def test_files_are_compressed_and_small(self):
        loaded = len(get("/")[2])
        self.assertTrue(first_files())
        for path in first_files():
            status, headers, body = get(path, Accept_Encoding="gzip, br")
            self.assertEqual((status, headers["Content-Encoding"]), (200, "gzip"), path)
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertTrue(gzip.decompress(body))
            loaded += len(body)
        self.assertLess(loaded, MOST_FIRST_BYTES)
        self.assertEqual(get(first_files()[0], Accept_Encoding="identity")[0], 406)
        self.assertEqual(get("/", Accept_Encoding="identity")[0], 200)

    def test_nothing_is_sent_twice(self):
        for path in ("/", *first_files()):
            tag = get(path)[1]["ETag"]
            status, headers, body = get(path, If_None_Match=f'"x", {tag}')
            self.assertEqual((status, headers["ETag"], body), (304, tag, b""), path)

    def test_no_other_file_is_there(self):
        for path in ("/console/nothing", "/console/..%2f..%2fetc%2fpasswd", "/console/%00", "/console/index.html%20", "/index.html"):
            self.assertIn(get(path)[0], (400, 404), path)
        status, _, answer = SERVER.call("GET", "/console/nothing.js")
        self.assertEqual((status, answer["error"]["code"]), (404, "not_found"))
        self.assertEqual(get("/console/")[0], 404)

    def test_it_names_no_other_server(self):
        for path in ("/", *first_files()):
            _, headers, body = get(path, Accept_Encoding="gzip")
            text = (gzip.decompress(body) if headers["Content-Encoding"] == "gzip" else body).decode()
            others = [url for url in re.findall(r"https?://[\w.-]+", text) if "www.w3.org" not in url]
            self.assertEqual(others, [], path)


class ConsoleBuildTest(unittest.TestCase):
    def test_without_its_tools_the_program_says_what_is_missing(self):
        source = pathlib.Path(__file__).resolve().parents[2] / "src"
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder) / "console_files.cc"
            subprocess.run(["cmake", "-DMISSING= esbuild node-marked", f"-DSOURCE={source}/serve/console/page", f"-DWORK={folder}/work",
                            f"-DOUT={made}", "-P", source / "serve/console/bundle.cmake"], check=True, capture_output=True)
            subprocess.run(["c++", "-std=c++20", "-fsyntax-only", f"-I{source}", made], check=True, capture_output=True)
            page = bytes.fromhex("".join(re.findall(r"\\x(..)", made.read_text()))).decode()
        self.assertIn("<b> esbuild node-marked</b>", page)
        self.assertNotIn("<script", page)


class ConsoleAccessTest(unittest.TestCase):
    def start(self, *args):
        server = served.Server(FILES.model, *args)
        self.addCleanup(server.stop)
        return server

    def test_the_page_needs_no_key_and_what_it_asks_does(self):
        server = self.start("--api-key", KEY)
        self.assertEqual(get("/", server)[0], 200)
        self.assertEqual(get(first_files()[0], server)[0], 200)
        self.assertEqual(get("/v1/engine", server)[0], 401)
        self.assertEqual(get("/v1/engine", server, X_Api_Key=KEY)[0], 200)

    def test_it_can_be_switched_off(self):
        for flag in ("--no-webui", "--no-ui"):
            server = self.start(flag)
            status, _, answer = server.call("GET", "/")
            self.assertEqual(status, 404)
            self.assertIn("--no-webui", answer["error"]["message"])
            self.assertEqual(get("/console/main.js", server)[0], 404)

    def test_its_own_page_may_change_adapters_and_no_other_may(self):
        host = f"127.0.0.1:{SERVER.port}"
        pin = {"lora_name": "one"}
        for origin, status in ((f"http://{host}", 200), (f"http://localhost:{SERVER.port}", 403), ("http://127.0.0.1:3000", 403),
                               (f"https://{host}", 403), ("null", 403)):
            self.assertEqual(SERVER.call("POST", "/v1/pin_lora_adapter", pin, {"Origin": origin})[0], status, origin)
        self.assertEqual(SERVER.call("POST", "/v1/unpin_lora_adapter", pin)[0], 200)
        off = self.start("--adapter-root", FILES.root, "--no-webui")
        self.assertEqual(off.call("POST", "/v1/pin_lora_adapter", pin, {"Origin": f"http://127.0.0.1:{off.port}"})[0], 403)

    def test_what_it_shows_of_the_engine(self):
        status, _, engine = SERVER.call("GET", "/v1/engine")
        self.assertEqual(status, 200)
        self.assertEqual(engine["model"]["max_model_len"], 4096)
        self.assertIsInstance(engine["model"]["notes"], list)
        self.assertEqual(engine["stats"]["running"], 0)
        self.assertNotIn(str(FILES.folder), str(engine), "no path of the server is shown")
        with contextlib.closing(SERVER.connection()) as connection:
            body = {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": True}
            connection.request("POST", "/v1/completions", body=json.dumps(body), headers=served.JSON)
            connection.getresponse().readline()
            (running,) = SERVER.call("GET", "/v1/engine")[2]["running"]
        self.assertEqual(running["adapters"], [])
        self.assertLessEqual(running["right_guesses"], running["guessed_tokens"])


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main()
