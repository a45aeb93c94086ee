#!/usr/bin/env python3
"""The server's life from its start to its end: life_test.py CHORAL [unittest arguments]."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import served

FILES = served.Files(context=4096)
LONG_ANSWER = {"n": 32, "return_token_ids": True}  # 0.9 MB or more, of which a connection keeps 0.2 while nobody reads
ENDLESS = {"prompt": "x", "max_tokens": 4000, "ignore_eos": True}


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class LifeTest(unittest.TestCase):
    def start(self, *args):
        return served.Server(FILES.model, *args)

    def open_stream(self, server, **body):
        """A connection whose answer has begun. The system keeps little of it: a long answer cannot end while nobody reads it."""
        connection = server.connection()
        connection.sock = socket.socket()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sock.settimeout(served.LONG)
        connection.sock.connect(("127.0.0.1", server.port))
        connection.request("POST", "/v1/completions", body=json.dumps({**ENDLESS, "stream": True, **body}), headers=served.JSON)
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        answer.readline()
        return connection, answer

    def test_an_idle_server_ends_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.assertEqual(self.start().stop(number), 0)

    def test_a_service_manager_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in (f"{folder}/notify", f"@choral-life-{os.getpid()}"):
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                    manager.bind(name.replace("@", "\0"))
                    manager.settimeout(served.LONG)
                    server = served.Server(FILES.model, env={"NOTIFY_SOCKET": name})
                    self.assertIn(b"READY=1", manager.recv(4096).split(b"\n"))
                    self.assertEqual(server.call("GET", "/readyz")[0], 200)
                    self.assertEqual(server.stop(), 0)
                    self.assertIn(b"STOPPING=1", manager.recv(4096).split(b"\n"))

    def test_a_service_manager_that_is_not_there_changes_nothing(self):
        for name in ("/nowhere/notify", "no place", "@" + 200 * "x"):
            server = served.Server(FILES.model, env={"NOTIFY_SOCKET": name})
            self.assertEqual(server.call("GET", "/readyz")[0], 200)
            self.assertEqual(server.stop(), 0)

    def test_answers_in_flight_are_completed(self):
        server = self.start()
        connection, answer = self.open_stream(server, max_tokens=300)
        with contextlib.closing(connection):
            server.process.send_signal(signal.SIGTERM)
            self.assertTrue(answer.read().rstrip().endswith(b"data: [DONE]"))
        self.assertEqual(server.process.wait(served.LONG), 0)

    def test_a_second_signal_cuts_them_off_with_an_error(self):
        server = self.start()
        connection, answer = self.open_stream(server, **LONG_ANSWER)
        with contextlib.closing(connection):
            server.process.send_signal(signal.SIGTERM)
            while server.call("GET", "/readyz")[0] == 200:
                time.sleep(0.01)
            while server.call("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200:
                time.sleep(0.01)
            self.assertRegex(server.call("GET", "/metrics")[2], r'admission_rejections_total\{[^}]*reason="draining"\} 1\n')
            server.process.send_signal(signal.SIGTERM)
            events = [line for line in answer.read().decode().split("\n") if line.startswith("data: ")]
            self.assertIn("error", json.loads(events[-1].removeprefix("data: ")))
        self.assertEqual(server.process.wait(served.LONG), 0)

    def test_the_limit_of_the_drain_cuts_them_off(self):
        server = self.start("--shutdown-timeout", "0.2")
        connection, answer = self.open_stream(server, **LONG_ANSWER)
        with contextlib.closing(connection):
            server.process.send_signal(signal.SIGTERM)
            while is_listening(server.port):
                time.sleep(0.01)
            self.assertIn(b'"error"', answer.read())
        self.assertEqual(server.process.wait(served.LONG), 0)

    def test_unready_comes_before_the_drain(self):
        server = self.start("--shutdown-delay", "60")
        self.assertEqual(server.call("GET", "/readyz")[0], 200)
        server.process.send_signal(signal.SIGTERM)
        while server.call("GET", "/readyz")[0] == 200:
            time.sleep(0.01)
        self.assertEqual(len(server.post("/v1/completions", prompt="x", max_tokens=2)["choices"]), 1)
        self.assertEqual(server.stop(), 0)

    def test_a_taken_port_is_said(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = subprocess.run([served.CHORAL, "serve", str(FILES.model), "--port", str(port)], capture_output=True, text=True,
                                  timeout=served.LONG)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(str(port), done.stderr)

    def test_a_unix_socket(self):
        path = FILES.folder / "choral.sock"
        server = self.start("--uds", path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b""
            while piece := client.recv(4096):
                answer += piece
        self.assertTrue(answer.startswith(b"HTTP/1.1 200"), answer)
        self.assertEqual(server.stop(), 0)

    def test_who_leaves_computes_no_more(self):
        """Endless answers whose clients leave hold up nobody: more of them than run together."""
        server = self.start("--max-num-seqs", "4")
        for stream in (True, False, True, False, True, False):
            with socket.create_connection(("127.0.0.1", server.port), timeout=served.LONG) as client:
                body = json.dumps({**ENDLESS, "stream": stream, "n": 4}).encode()
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                if stream:
                    client.recv(100)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(server.post("/v1/completions", prompt="y", max_tokens=2))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(served.LONG)
        self.assertEqual(len(answers), 4)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
