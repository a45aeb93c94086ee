#!/usr/bin/env python3
"""deploy/haproxy/haproxy.cfg as it stands, in front of three servers: haproxy_test.py CHORAL [unittest arguments]. 77 without HAProxy."""

import collections
import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request

import fleet
import served

CONFIG = fleet.PROJECT / "deploy" / "haproxy" / "haproxy.cfg"
HAPROXY = fleet.need_program("haproxy")
FILES = fleet.Files()
BUFFER = int(re.search(r"tune\.bufsize (\d+)", CONFIG.read_text())[1])


class HaproxyFleet(fleet.Fleet):
    def __init__(self, *args, replicas=None):
        super().__init__(FILES, *args, replicas=replicas)

    def start_proxy(self):
        clients, figures = fleet.listening_socket(), fleet.listening_socket()
        self.port, self.figures_port = clients.getsockname()[1], figures.getsockname()[1]
        with open(self.log, "w", encoding="utf-8") as log, contextlib.closing(clients), contextlib.closing(figures):
            self.process = subprocess.Popen([HAPROXY, "-db", "-f", CONFIG], stdout=log, stderr=log, pass_fds=(clients.fileno(), figures.fileno()),
                                            env={**os.environ, **self.addresses(), "EDGE_BIND": f"fd@{clients.fileno()}",
                                                 "EDGE_FIGURES": f"fd@{figures.fileno()}", "EDGE_CERTIFICATE": str(FILES.both)})
        self.wait_for(lambda: all(self.is_up(name) and self.was_checked(name) for name in fleet.REPLICAS), "not all replicas are up")

    def figures(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.figures_port}{path}", timeout=served.LONG) as answer:
            return answer.read().decode()

    def own_figure(self, name, server, **labels):
        """Of HAProxy itself; none where it says nothing."""
        more = "".join(f',{label}="{value}"' for label, value in labels.items())
        found = re.search(rf'^{name}\{{proxy="replicas",server="{server}"{more}\}} (\S+)$', self.figures("/metrics"), re.M)
        return found and float(found[1])

    def rest(self):
        """A client has its answer a moment before HAProxy counts it as ended, and the next request would find its replica loaded."""
        self.wait_for(lambda: not any(self.own_figure("haproxy_server_current_sessions", name) for name in fleet.REPLICAS), "it does not rest")

    def complete_alone(self, adapter="base", **body):
        self.rest()
        return self.complete(adapter, **body)

    def was_checked(self, server):
        """A check that took less than half a millisecond took none."""
        return self.own_figure("haproxy_server_check_duration_seconds", server) is not None

    def is_up(self, server):
        return self.own_figure("haproxy_server_status", server, state="UP") == 1


class ServingTest(unittest.TestCase):
    """What goes on while all three are there."""

    @classmethod
    def setUpClass(cls):
        cls.edge = HaproxyFleet("--trusted-proxies", "127.0.0.1")
        cls.addClassCleanup(cls.edge.stop)

    def test_the_configuration_has_no_warning(self):
        environment = {"EDGE_BIND": ":8443", "EDGE_FIGURES": ":8404", "EDGE_CERTIFICATE": str(FILES.both), **{f"REPLICA_{i}": "10.0.0.1:80" for i in (1, 2, 3)}}
        done = subprocess.run([HAPROXY, "-c", "-dW", "-f", CONFIG], env={**os.environ, **environment}, capture_output=True, text=True, timeout=served.LONG)
        self.assertEqual(done.returncode, 0, done.stderr)

    # --- who answers ---

    def test_an_adapter_stays_at_one_replica(self):
        edge = self.edge
        homes = {adapter: [edge.complete_alone(adapter)[0] for _ in range(6)] for adapter in fleet.UNTOUCHED}
        self.assertEqual({adapter: edge.holders(adapter) for adapter in homes}, {adapter: [replicas[0]] for adapter, replicas in homes.items()})
        self.assertEqual({adapter: set(replicas) for adapter, replicas in homes.items()}, {adapter: {replicas[0]} for adapter, replicas in homes.items()})
        self.assertGreater(len({replicas[0] for replicas in homes.values()}), 1, homes)
        self.assertEqual({edge.complete_alone("base", lora=[{"name": fleet.UNTOUCHED[0], "scale": 0.5}])[0] for _ in range(4)}, {homes[fleet.UNTOUCHED[0]][0]})

    def test_who_names_nobody_goes_anywhere(self):
        edge = self.edge
        for method, path, body in (("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}), ("GET", "/v1/models", None)):
            self.assertEqual({edge.call(method, path, body)[1]["X-Choral-Replica"] for _ in range(6)}, set(fleet.REPLICAS), "each in turn")

    def test_a_loaded_replica_passes_on(self):
        edge = self.edge
        home, text = edge.complete_alone("adapter1")
        streams = [edge.stream("adapter1", 4000) for _ in range(9)]
        try:
            taken = collections.Counter(answer.headers["X-Choral-Replica"] for _, answer in streams)
            self.assertLessEqual(max(taken.values()), 6, "1.5 times its part of nine, and one for the answers that had ended")
            self.assertGreater(taken[home], 0)
            self.assertGreater(len(taken), 1)
        finally:
            for connection, _ in streams:
                connection.close()
        for replica in fleet.REPLICAS:
            edge.wait_for(lambda replica=replica: edge.running(replica) == 0, "who left is computed for")
        self.assertEqual(edge.complete_alone("adapter1"), (home, text))

    def test_a_body_beyond_the_buffer(self):
        """Its adapter is found where it stands in front, and the answer is right in any case."""
        edge = self.edge
        home, text = edge.complete_alone("adapter2")
        front = b'{"model": "adapter2", "prompt": "x", "temperature": 0, "max_tokens": 3' + b" " * BUFFER + b"}"
        behind = b'{"prompt": "x", "temperature": 0, "max_tokens": 3' + b" " * BUFFER + b', "model": "adapter2"}'
        replicas = {}
        for body in (front, behind):
            replicas[body] = set()
            for _ in range(20):
                edge.rest()
                status, headers, answer = edge.call("POST", "/v1/completions", body)
                self.assertEqual((status, json.loads(answer)["choices"][0]["text"]), (200, text))
                replicas[body].add(headers["X-Choral-Replica"])
        self.assertEqual(replicas[front], {home})
        self.assertGreater(len(replicas[behind]), 1)

    def test_streams_are_passed_on_as_they_come(self):
        replicas = {name: fleet.Slow() for name in fleet.REPLICAS}
        for slow in replicas.values():
            self.addCleanup(slow.stop)
        edge = HaproxyFleet(replicas=replicas)
        self.addCleanup(edge.stop)
        self.assertEqual(edge.paced_stream(), fleet.Slow.EVENTS)

    def aborted(self):
        return sum(self.edge.figure(replica, "vllm:request_success_total", finished_reason="abort") for replica in fleet.REPLICAS)

    def test_who_leaves_is_not_computed_for(self):
        edge = self.edge
        before = self.aborted()
        with contextlib.closing(edge.connection()) as connection:
            connection.request("POST", "/v1/completions", json.dumps({"model": "adapter3", "prompt": "x", "n": 8, "max_tokens": 4000, "ignore_eos": True}), served.JSON)
            edge.wait_for(lambda: sum(map(edge.running, fleet.REPLICAS)) == 8, "nothing is computed")
        edge.wait_for(lambda: sum(map(edge.running, fleet.REPLICAS)) == 0, "who left is computed for")
        edge.wait_for(lambda: self.aborted() >= before + 1, "it was computed to its end")

    # --- who asks, and who looks ---

    def test_nobody_behind_it_is_an_administrator(self):
        edge = self.edge
        body = {"lora_name": "late", "lora_path": "adapter0"}
        for source in ("127.0.0.1", "127.0.0.2"):
            for forged in ({}, {"X-Forwarded-For": "127.0.0.1"}, {"X-Forwarded-For": ""}, {"Forwarded": "for=127.0.0.1"}, {"X-Real-IP": "127.0.0.1"}):
                status, _, answer = edge.call("POST", "/v1/load_lora_adapter", body, forged, source)
                self.assertEqual(status, 403, (source, forged))
                self.assertIn(b"a proxy passed this on", answer)

    def test_nor_where_replicas_do_not_know_of_it(self):
        replicas = {name: FILES.serve() for name in fleet.REPLICAS}
        edge = HaproxyFleet(replicas=replicas)
        self.addCleanup(edge.stop)
        body = {"lora_name": "late", "lora_path": "adapter0"}
        self.assertEqual(edge.call("POST", "/v1/load_lora_adapter", body)[0], 403)
        self.assertEqual(replicas["replica1"].call("POST", "/v1/load_lora_adapter", body)[0], 200, "from this machine, without it")

    def test_replicas_know_whom_a_request_is_from(self):
        edge = self.edge
        for forged in ({}, {"X-Forwarded-For": "203.0.113.9"}):
            home = edge.call("GET", "/v1/models", headers=forged, source="127.0.0.2")[1]["X-Choral-Replica"]
            edge.wait_for(lambda home=home: any("127.0.0.2" in line for line in edge.replicas[home].said), "the log does not name the client")
        self.assertFalse(any("203.0.113.9" in line for server in edge.replicas.values() for line in server.said))

    def test_clients_may_speak_http_2(self):
        edge = self.edge
        done = subprocess.run(["curl", "-sS", "--http2", "--cacert", FILES.certificate, "-w", "\n%{http_version}", "-H", "Content-Type: application/json",
                               "-d", '{"model": "adapter1", "prompt": "x", "max_tokens": 3, "stream": true}', f"https://localhost:{edge.port}/v1/completions"],
                              capture_output=True, text=True, timeout=served.LONG)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"data: \[DONE\]\s+2$")

    def test_the_figures_of_all(self):
        edge = self.edge
        started = {}
        for replica, server in edge.replicas.items():
            text = edge.figures(f"/{replica}/metrics")
            self.assertIn("vllm:lora_requests_info", text)
            started[replica] = re.search(r"^process_start_time_seconds (\S+)$", text, re.M)[0]
            self.assertIn(started[replica], server.call("GET", "/metrics")[2])
        self.assertEqual(len(set(started.values())), len(started), "each is another one's")
        with self.assertRaises(urllib.error.HTTPError) as other:
            edge.figures("/replica4/metrics")
        self.assertEqual(other.exception.code, 404)
        other.exception.close()
        self.assertEqual({edge.call("GET", path)[0] for path in ("/metrics", "/v1/metrics")}, {404}, "clients see no figures")


class ComingAndGoingTest(unittest.TestCase):
    """What goes on while replicas end, die and come back."""

    def start(self, *args, replicas=None):
        made = HaproxyFleet(*args, replicas=replicas)
        self.addCleanup(made.stop)
        return made

    def test_a_replica_that_dies_before_the_first_byte(self):
        edge = self.start()
        home, text = edge.complete_alone("adapter4", max_tokens=2000, ignore_eos=True)
        answers = []
        asking = threading.Thread(target=lambda: answers.append(edge.complete_alone("adapter4", max_tokens=2000, ignore_eos=True)))
        asking.start()
        edge.wait_for(lambda: edge.running(home) == 1, "it is not asked")
        edge.kill(home)
        asking.join(served.LONG)
        self.assertEqual(len(answers), 1)
        self.assertNotEqual(answers[0][0], home)
        self.assertEqual(answers[0][1], text, "the same answer from another one")
        self.assertNotEqual(edge.complete("adapter4")[0], home)
        edge.wait_for(lambda: not edge.is_up(home), "it is not missed")

    def test_an_answer_that_has_begun_is_not_sent_twice(self):
        edge = self.start()
        connection, answer = edge.stream("adapter4", 4000)
        with contextlib.closing(connection):
            edge.kill(answer.headers["X-Choral-Replica"])
            with self.assertRaises((OSError, http.client.HTTPException)):  # cut off in the middle of a chunk
                answer.read()

    def test_what_is_sent_twice(self):
        """Requests for answers; never what changes something."""
        replicas = {name: fleet.Silent() for name in fleet.REPLICAS}
        for silent in replicas.values():
            self.addCleanup(silent.stop)
        edge = self.start(replicas=replicas)
        for path, most in (("/v1/completions", 4), ("/v1/chat/completions", 4), ("/v1/load_lora_adapter", 1), ("/v1/unload_lora_adapter", 1), ("/lora-adapters", 1),
                           ("/v1/adapter_uploads", 1), ("/v1/adapter_uploads/x/load", 1), ("/v1/files", 1), ("/v1/batches", 1)):
            status, _, answer = edge.call("POST", path, {"model": "x"})
            self.assertEqual((status, json.loads(answer)["error"]["type"]), (502, "server_error"), path)
            self.assertEqual([asked for silent in replicas.values() for asked in silent.asked], [path] * most)
            if most > 1:
                self.assertGreater(sum(bool(silent.asked) for silent in replicas.values()), 1, "at another one")
            for silent in replicas.values():
                silent.asked.clear()
        self.assertEqual(edge.call("POST", "/v1/completions", b'{"model": "x"' + b" " * BUFFER + b"}")[0], 502)
        self.assertEqual(sum(len(silent.asked) for silent in replicas.values()), 1, "what is beyond the buffer can't be sent once more")

    def test_a_drain_loses_nothing(self):
        # Answers of 503 are asked for elsewhere; what is too long for that wants that /readyz has said so before.
        for delay, padding in (("0", 0), ("5", BUFFER)):
            with self.subTest(delay=delay):
                edge = self.start("--shutdown-delay", delay)
                load = fleet.Load(edge, padding=padding)
                self.addCleanup(load.end)
                edge.wait_for(lambda load=load: set(load.answers) == set(fleet.REPLICAS), "not all of them are asked")
                gone = "replica2"
                self.assertEqual(edge.replicas[gone].stop(), 0)
                before = len(load.answers)
                edge.wait_for(lambda load=load, before=before: len(load.answers) > before + 30, "nothing is answered")
                load.end()
                self.assertEqual(load.faults, [])
                self.assertNotIn(gone, load.answers[before + 30:])
                edge.stop()

    def test_a_replica_that_comes_back_is_asked_again(self):
        edge = self.start()
        home = edge.complete_alone("adapter5")[0]
        port = edge.replicas[home].port
        edge.kill(home)
        edge.wait_for(lambda: not edge.is_up(home), "it is not missed")
        self.assertNotEqual(edge.complete("adapter5")[0], home)
        again = served.Server(command=[served.CHORAL, "serve", str(FILES.model), "--adapter-root", str(FILES.folder / "adapters"), "--port", str(port)])
        self.addCleanup(again.stop)
        edge.wait_for(lambda: edge.is_up(home), "it is not found")
        self.assertEqual(edge.complete_alone("adapter5")[0], home)

    def test_without_a_replica_clients_are_told_so(self):
        edge = self.start()
        for replica in fleet.REPLICAS:
            edge.kill(replica)
        edge.wait_for(lambda: not any(map(edge.is_up, fleet.REPLICAS)), "they are not missed")
        status, headers, answer = edge.call("POST", "/v1/completions", {"prompt": "x"})
        error = json.loads(answer)["error"]
        self.assertEqual((status, error["type"], error["code"], headers["Retry-After"]), (503, "unavailable_error", "unavailable", "1"))


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
