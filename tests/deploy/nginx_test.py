#!/usr/bin/env python3
"""deploy/nginx as it stands, in front of three servers: nginx_test.py CHORAL [unittest arguments]. 77 without nginx and its njs."""

import collections
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import fleet
import served

FOLDER = fleet.PROJECT / "deploy" / "nginx"
NGINX = fleet.need_program("nginx")
MODULE = fleet.proxies() / "usr" / "lib" / "nginx" / "modules" / "ngx_http_js_module.so"
if not MODULE.exists():
    print("skipped: nginx has no njs here (libnginx-mod-http-js); ./dev test fetches it where Debian's packages can be reached")
    sys.exit(77)
FILES = fleet.Files()
BUFFER = 256 << 10  # client_body_buffer_size


class NginxFleet(fleet.Fleet):
    def __init__(self, *args, replicas=None):
        super().__init__(FILES, *args, replicas=replicas)

    def start_proxy(self):
        self.home = pathlib.Path(tempfile.mkdtemp(dir=FILES.folder))
        (self.home / "modules").mkdir()
        (self.home / "modules" / MODULE.name).symlink_to(MODULE)
        with contextlib.closing(fleet.listening_socket()) as clients, open(self.log, "w", encoding="utf-8") as log:
            self.port = clients.getsockname()[1]
            values = {**self.addresses(), "EDGE_BIND": f"127.0.0.1:{self.port}", "EDGE_CERTIFICATE": str(FILES.certificate), "EDGE_KEY": str(FILES.key),
                      "EDGE_SCRIPTS": str(FOLDER)}
            text = (FOLDER / "nginx.conf.template").read_text()
            for name, value in values.items():
                text = text.replace("${" + name + "}", value)
            (self.home / "nginx.conf").write_text(text)
            # As nginx hands its sockets to a new version of itself.
            self.process = subprocess.Popen([NGINX, "-p", self.home, "-c", "nginx.conf", "-g", "daemon off;" + (" user root;" if os.getuid() == 0 else "")], stdout=log, stderr=log,
                                            pass_fds=(clients.fileno(),), env={**os.environ, "NGINX": f"{clients.fileno()};"})
        self.by_address = {address: name for address, name in zip(self.addresses().values(), self.replicas)}
        self.wait_for(self.answers, "it does not answer")

    def answers(self):
        with contextlib.suppress(OSError):
            return self.call("GET", "/metrics")[0] == 404
        return False

    def home_of(self, adapter, **body):
        """The replica that answered in the end, and what."""
        addresses, text = self.complete(adapter, **body)
        return self.by_address[addresses.split(", ")[-1]], text


class NginxTest(unittest.TestCase):
    def start(self, *args, replicas=None):
        made = NginxFleet(*args, replicas=replicas)
        self.addCleanup(made.stop)
        return made

    def test_an_adapter_stays_at_one_replica(self):
        edge = self.start()
        homes = {adapter: {edge.home_of(adapter)[0] for _ in range(6)} for adapter in fleet.ADAPTERS}
        self.assertEqual({len(replicas) for replicas in homes.values()}, {1}, homes)
        self.assertGreater(len({replica for replicas in homes.values() for replica in replicas}), 1, homes)
        self.assertEqual({edge.home_of("base", lora=[{"name": "adapter1", "scale": 0.5}])[0] for _ in range(4)}, homes["adapter1"])
        self.assertGreater(len({edge.call("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[1]["X-Choral-Replica"] for _ in range(30)}), 1)

    def test_a_body_beyond_the_buffer(self):
        edge = self.start()
        text = edge.home_of("adapter2")[1]
        replicas = set()
        for _ in range(20):
            status, headers, answer = edge.call("POST", "/v1/completions", b'{"model": "adapter2", "prompt": "x", "temperature": 0, "max_tokens": 3' + b" " * 2 * BUFFER + b"}")
            self.assertEqual((status, json.loads(answer)["choices"][0]["text"]), (200, text))
            replicas.add(headers["X-Choral-Replica"])
        self.assertGreater(len(replicas), 1)

    def test_streams_are_passed_on_as_they_come(self):
        replicas = {name: fleet.Slow() for name in fleet.REPLICAS}
        for slow in replicas.values():
            self.addCleanup(slow.stop)
        edge = self.start(replicas=replicas)
        self.assertEqual(edge.paced_stream(), fleet.Slow.EVENTS)

    def test_who_leaves_is_not_computed_for(self):
        edge = self.start()
        connection, answer = edge.stream("adapter3", 4000)
        replica = edge.by_address[answer.headers["X-Choral-Replica"]]
        connection.close()
        edge.wait_for(lambda: edge.running(replica) == 0, "who left is computed for")
        self.assertEqual(edge.figure(replica, "vllm:request_success_total", finished_reason="abort"), 1)

    def test_a_replica_that_is_dead(self):
        edge = self.start()
        home, text = edge.home_of("adapter4")
        edge.kill(home)
        other, same = edge.home_of("adapter4")
        self.assertNotEqual(other, home)
        self.assertEqual(same, text)

    def test_what_is_sent_twice(self):
        replicas = {name: fleet.Silent() for name in fleet.REPLICAS}
        for silent in replicas.values():
            self.addCleanup(silent.stop)
        for path, most in (("/v1/completions", 3), ("/v1/load_lora_adapter", 1), ("/lora-adapters", 1), ("/v1/adapter_uploads/x/load", 1), ("/v1/files", 1)):
            edge = self.start(replicas=replicas)  # which has seen no failure
            self.assertEqual(edge.call("POST", path, {"model": "x"})[0], 502, path)
            self.assertEqual([asked for silent in replicas.values() for asked in silent.asked], [path] * most)
            edge.stop()
            for silent in replicas.values():
                silent.asked.clear()

    def test_a_drain_loses_nothing(self):
        edge = self.start()
        load = fleet.Load(edge)
        self.addCleanup(load.end)
        edge.wait_for(lambda: len(load.answers) > 30, "nothing is answered")
        busiest = collections.Counter(load.answers).most_common(1)[0][0]
        self.assertEqual(edge.replicas[edge.by_address[busiest.split(", ")[-1]]].stop(), 0)
        before = len(load.answers)
        edge.wait_for(lambda: len(load.answers) > before + 30, "nothing is answered")
        load.end()
        self.assertEqual(load.faults, [])

    def test_nobody_behind_it_is_an_administrator(self):
        edge = self.start()
        for forged in ({}, {"X-Forwarded-For": "127.0.0.1"}):
            status, _, answer = edge.call("POST", "/v1/load_lora_adapter", {"lora_name": "late", "lora_path": "adapter0"}, forged)
            self.assertEqual(status, 403)
            self.assertIn(b"a proxy passed this on", answer)

    def test_replicas_know_whom_a_request_is_from(self):
        edge = self.start("--trusted-proxies", "127.0.0.1")
        home = edge.by_address[edge.call("GET", "/v1/models", headers={"X-Forwarded-For": "203.0.113.9"}, source="127.0.0.2")[1]["X-Choral-Replica"]]
        edge.wait_for(lambda: any("127.0.0.2" in line for line in edge.replicas[home].said), "the log does not name the client")


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
