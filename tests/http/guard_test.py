#!/usr/bin/env python3
"""Keys, limits, metrics, and what survives a restart: guard_test.py CHORAL [unittest arguments]."""

import hashlib
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import unittest

import served
from served import tiny_model

FILES = served.Files(context=4096)
SHORT = {"prompt": "Hello", "max_tokens": 3}
USER, ADMIN = "user-key-0123456789", "admin-key-0123456789"


def make_certificate(folder, name, *key):
    """cert.pem, with another key.pem unless a `-key` is given."""
    key = key or ("-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-days", "2", "-subj", f"/CN={name}", *key, "-out", folder / "cert.pem"], check=True,
                   capture_output=True, timeout=served.LONG)


def shown(port):
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=served.LONG)


class GuardTest(unittest.TestCase):
    def start(self, *args):
        server = served.Server(FILES.model, *args)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def ask(self, server, key=None, path="/v1/completions", **body):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return server.call("POST", path, {**SHORT, **body} if path == "/v1/completions" else body, headers)

    # --- keys ---

    def test_keys_guard_everything_but_health(self):
        server = self.start("--api-key", USER, "--admin-api-key", ADMIN, "--adapter-root", FILES.root)
        for key in (None, "wrong", USER + "x", USER[:-1]):
            status, headers, answer = self.ask(server, key)
            self.assertEqual((status, answer["error"]["type"]), (401, "authentication_error"))
            self.assertEqual(headers["WWW-Authenticate"], "Bearer")
        for path in ("/v1/models", "/metrics", "/openapi.json", "/version", "/lora-adapters", "/nothing", "//v1/models", "/v1/models/../models"):
            self.assertEqual(server.call("GET", path)[0], 401, path)
        for path in ("/health", "/readyz"):
            self.assertEqual(server.call("GET", path)[0], 200)
        self.assertEqual(self.ask(server, USER)[0], 200)
        self.assertEqual(server.call("GET", "/v1/models", headers={"X-Api-Key": USER})[0], 200)
        load = {"lora_name": "late", "lora_path": "one"}
        self.assertEqual(self.ask(server, USER, "/v1/load_lora_adapter", **load)[0], 403)
        self.assertEqual(self.ask(server, ADMIN, "/v1/load_lora_adapter", **load)[0], 200)
        self.assertNotIn(USER, "".join(server.said))

    def test_a_file_of_keys_is_read_again(self):
        path = FILES.folder / "keys"
        path.write_text(f"alice:{hashlib.sha256(USER.encode()).hexdigest()}\n")
        os.chmod(path, 0o600)
        server = self.start("--api-key-file", path)
        self.assertEqual(self.ask(server, USER)[0], 200)
        path.write_text("another-key-0123456789 user\n")
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + served.LONG
        while self.ask(server, USER)[0] != 401 and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.ask(server, "another-key-0123456789")[0], 200)
        path.write_text("bad line of many words\n")
        server.process.send_signal(signal.SIGHUP)
        while not any("keys" in line and "line" in line for line in server.said) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.ask(server, "another-key-0123456789")[0], 200)

    # --- TLS ---

    def test_a_hang_up_while_it_starts_is_heard(self):
        """The certificate comes slowly, through a pipe; by the time that it is there it is an old one."""
        folder = FILES.folder / "slow"
        folder.mkdir()
        make_certificate(folder, "old")
        old = (folder / "cert.pem").rename(folder / "old.pem").read_text()
        make_certificate(folder, "new", "-key", folder / "key.pem")
        new = (folder / "cert.pem").rename(folder / "new.pem").read_text()
        os.mkfifo(folder / "cert.pem")

        def hang_up():
            with open(folder / "cert.pem", "w") as pipe:  # waits until the server reads
                (folder / "new.pem").replace(folder / "cert.pem")
                pid = int((folder / "pid").read_text())
                os.kill(pid, signal.SIGHUP)
                while int(re.search(r"^ShdPnd:\s*(\w+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1], 16) & 1:
                    time.sleep(0.01)
                pipe.write(old)

        thread = threading.Thread(target=hang_up)
        thread.start()
        program = f"exec {pathlib.Path(served.CHORAL).resolve()} serve {FILES.model} --port 0 --ssl-certfile cert.pem --ssl-keyfile key.pem"
        server = served.Server(command=["bash", "-c", f"echo $$ > pid; {program}"], cwd=folder)
        self.addCleanup(server.stop)
        thread.join(served.LONG)
        self.assertEqual(shown(server.port), new)
        self.assertTrue(any("the keys were read again" in line for line in server.said), server.said)

    def test_a_certificate_is_read_again(self):
        folder = FILES.folder / "tls"
        folder.mkdir()
        make_certificate(folder, "first")
        server = self.start("--ssl-certfile", folder / "cert.pem", "--ssl-keyfile", folder / "key.pem")
        first = shown(server.port)
        self.assertEqual(first, (folder / "cert.pem").read_text())
        make_certificate(folder, "second")
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + served.LONG
        while shown(server.port) == first and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(shown(server.port), (folder / "cert.pem").read_text())
        (folder / "cert.pem").write_text("no certificate")
        server.process.send_signal(signal.SIGHUP)
        while not any("cert.pem" in line and "PEM" in line for line in server.said) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertNotEqual(shown(server.port), first)

    # --- limits ---

    def test_a_full_queue_is_429(self):
        server = self.start("--max-num-seqs", "1", "--max-num-queued-reqs", "1")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.ask(server, max_tokens=1000, ignore_eos=True))) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(served.LONG)
        self.assertEqual({status for status, _, _ in answers}, {200, 429})
        refused = next(headers for status, headers, _ in answers if status == 429)
        self.assertGreaterEqual(int(refused["Retry-After"]), 1)

    def test_tokens_a_second_of_a_key(self):
        server = self.start("--api-key", USER, "--tokens-per-second-per-key", "1")
        statuses = [self.ask(server, USER, max_tokens=50, ignore_eos=True)[0] for _ in range(4)]
        self.assertEqual(statuses[0], 200)
        self.assertEqual(statuses[-1], 429)

    def test_tokenising_is_charged(self):
        """And a prompt that is refused because it is too long, with what it takes to find that out."""
        for path, body in (("/tokenize", {"prompt": "x" * 20000}), ("/tokenize", {"messages": [{"role": "user", "content": "x" * 20000}]}),
                           ("/detokenize", {"tokens": [97] * 20000}), ("/v1/completions", {"prompt": "x" * 20000}),
                           ("/v1/completions", {"prompt": ["x", "x" * 20000]}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 20000}]})):
            server = self.start("--api-key", USER, "--admin-api-key", ADMIN, "--tokens-per-second-per-key", "40")
            status = server.call("POST", path, {**body, "max_tokens": 1}, {"X-Api-Key": USER})[0]
            self.assertEqual(status, 400 if "completions" in path else 200, path)
            status, headers, _ = self.ask(server, USER)
            self.assertEqual((status, int(headers["Retry-After"]) > 30), (429, True), path)
            self.assertEqual(self.ask(server, ADMIN)[0], 200)
            server.stop()

    def test_an_admin_tokenises_texts_of_any_length(self):
        server = self.start("--api-key", USER, "--admin-api-key", ADMIN)
        for key, status in ((USER, 400), (ADMIN, 200)):
            for path, body in (("/tokenize", {"prompt": "x" * 40000}), ("/detokenize", {"tokens": [97] * 40000})):
                self.assertEqual(self.ask(server, key, path, **body)[0], status, (key, path))

    def test_tokens_of_an_adapter(self):
        """One that brings tokens of its own reads and writes with them, here as in its answers."""
        root, own = FILES.folder / "own", tiny_model.VOCABULARY
        tiny_model.add_own_tokens(tiny_model.write_adapter(root / "greek", 3), "<greek>")
        tiny_model.write_adapter(root / "one", 1)
        server = self.start("--adapter-root", root)
        got = server.post("/tokenize", model="greek", prompt="a<greek>", return_token_strs=True)
        self.assertEqual((got["tokens"], got["token_strs"]), ([97, own], ["a", "<greek>"]))
        self.assertEqual(server.post("/v1/completions", **SHORT | {"model": "greek", "prompt": "a<greek>"})["usage"]["prompt_tokens"], 2)
        self.assertEqual(server.post("/tokenize", model="base:greek", messages=[{"role": "user", "content": "<greek>"}])["tokens"].count(own), 1)
        self.assertEqual(server.post("/tokenize", prompt="a<greek>")["count"], 8)
        self.assertEqual(server.post("/tokenize", model="one", prompt="a<greek>")["count"], 8)
        self.assertEqual(server.post("/detokenize", model="greek", tokens=[97, own])["prompt"], "a<greek>")
        self.assertEqual(server.call("POST", "/detokenize", {"tokens": [own]})[0], 400)
        for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [97]})):
            status, _, answer = server.call("POST", path, {"model": "greeek", **body})
            self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]), (404, "model_not_found", "model"))
            self.assertIn("'greek'", answer["error"]["message"])

    def test_a_body_of_many_prompts_is_one_request_of_its_key(self):
        server = self.start("--api-key", USER, "--max-requests-per-key", "1")
        status, _, answer = self.ask(server, USER, prompt=[f"Item {i}" for i in range(8)], n=2)
        self.assertEqual((status, [choice["index"] for choice in answer["choices"]]), (200, list(range(16))))
        status, _, answer = self.ask(server, USER, "/v1/embeddings", input=["a", "b", "c"])
        self.assertEqual((status, [entry["index"] for entry in answer["data"]]), (200, [0, 1, 2]))

    def test_a_body_of_many_prompts_is_taken_as_a_whole_or_not_at_all(self):
        server = self.start("--max-num-seqs", "1", "--max-num-queued-reqs", "4")
        for body in ({"prompt": ["x"] * 5}, {"prompt": ["x"] * 3, "n": 2}):
            status, _, answer = self.ask(server, **body)
            self.assertEqual((status, answer["error"]["code"]), (400, "too_large"), "to try again would be in vain")
        status, _, answer = self.ask(server, prompt=["x", "y" * 5000])
        self.assertEqual(status, 400)
        self.assertIn("prompt 1: the prompt", answer["error"]["message"])
        self.assertRegex(server.call("GET", "/metrics")[2], "\nvllm:prompt_tokens_total\\{[^}]*\\} 0\n")
        self.assertEqual(self.ask(server, prompt=["x"] * 4)[0], 200)

    def test_who_leaves_pays_for_what_was_computed(self):
        server = self.start("--api-key", USER, "--tokens-per-second-per-key", "1")
        body = json.dumps({"prompt": "Hello", "best_of": 2, "n": 1, "max_tokens": 2000, "ignore_eos": True})
        connection = server.connection()
        connection.request("POST", "/v1/completions", body=body, headers={"Authorization": f"Bearer {USER}", **served.JSON})
        end = time.monotonic() + served.LONG
        made = re.compile(r"^vllm:generation_tokens_total\{.*\} (\d+)$", re.M)
        while int(made.search(server.call("GET", "/metrics", headers={"X-Api-Key": USER})[2])[1]) < 200 and time.monotonic() < end:
            time.sleep(0.01)
        connection.close()  # nothing of the answer has been given
        while not re.search(r'finished_reason="abort"[^}]*\} 1$', server.call("GET", "/metrics", headers={"X-Api-Key": USER})[2], re.M):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        status, headers, _ = self.ask(server, USER, max_tokens=1)
        self.assertEqual(status, 429)
        self.assertGreater(int(headers["Retry-After"]), 60)

    def test_one_key_leaves_room_in_the_queue_to_others(self):
        server = self.start("--api-key", USER, "--api-key", ADMIN, "--max-num-seqs", "1", "--max-num-queued-reqs", "8")
        connections = []

        def send(key, **body):
            connections.append(server.connection())
            connections[-1].request("POST", "/v1/completions", body=json.dumps({"prompt": "x", **body}),
                                    headers={"X-Api-Key": key, **served.JSON})

        def wait_for(wanted, **of):
            """Until the gauge or counter has the value."""
            labels = "".join(f'.*{name}="{value}"' for name, value in of.items())
            series, end = re.compile(rf"^vllm:{wanted[0]}\{{{labels}.*\}} (\d+)$", re.M), time.monotonic() + served.LONG
            while int(series.search(server.call("GET", "/metrics", headers={"X-Api-Key": ADMIN})[2])[1]) != wanted[1]:
                self.assertLess(time.monotonic(), end, wanted)

        long = {"max_tokens": 4000, "ignore_eos": True}
        send(USER, **long)
        wait_for(("num_requests_running", 1))
        for _ in range(15):
            send(USER, **long)
        wait_for(("admission_rejections_total", 11), reason="queue_share")
        wait_for(("num_requests_waiting", 4))  # half of the queue
        send(ADMIN, max_tokens=1)
        wait_for(("num_requests_waiting", 5))
        for connection in connections[:-1]:
            connection.close()
        self.assertEqual(connections[-1].getresponse().status, 200)
        connections[-1].close()
        status, _, answer = self.ask(server, USER, prompt=["x"] * 5)
        self.assertEqual((status, answer["error"]["code"]), (400, "too_large"))

    def test_one_address_leaves_room_in_the_queue_to_others(self):
        """Without keys; whoever comes through the proxy is named by it."""
        server = self.start("--max-num-seqs", "1", "--max-num-queued-reqs", "8", "--trusted-proxies", "127.0.0.1")

        def ask(address, **body):
            return server.call("POST", "/v1/completions", {**SHORT, **body}, {"X-Forwarded-For": address})

        connection = server.connection()
        self.addCleanup(connection.close)
        long = json.dumps({"prompt": "x", "n": 4, "max_tokens": 4000, "ignore_eos": True})
        connection.request("POST", "/v1/completions", body=long, headers={"X-Forwarded-For": "2001:db8::1", **served.JSON})
        waiting, end = re.compile(r"^vllm:num_requests_waiting\{.*\} (\d+)$", re.M), time.monotonic() + served.LONG
        while int(waiting.search(server.call("GET", "/metrics")[2])[1]) != 3:
            self.assertLess(time.monotonic(), end)
        status, headers, answer = ask("2001:db8::2", n=4)
        self.assertEqual((status, headers["Retry-After"]), (429, "1"))
        self.assertIn("client 2001:db8::/64 has 4 answers in flight", answer["error"]["message"])
        self.assertRegex(server.call("GET", "/metrics")[2], r'admission_rejections_total\{[^}]*reason="queue_share"[^}]*\} 1\n')
        self.assertEqual(ask("127.0.0.1, 2001:db8::2", n=4)[0], 429, "what a client writes itself")
        connection.close()
        self.assertEqual(ask("203.0.113.7", n=4)[0], 200, "another address finds a place")

    def test_times(self):
        server = self.start("--request-timeout", "0.05")
        status, _, answer = self.ask(server, max_tokens=4000, ignore_eos=True)
        self.assertEqual((status, answer["error"]["code"]), (408, "deadline_exceeded"))

    # --- metrics ---

    def test_metrics(self):
        server = self.start("--adapter-root", FILES.root)
        for model in ("tiny", "one", "one", "two"):
            self.assertEqual(self.ask(server, model=model, ignore_eos=True)[0], 200)
        tokens, end = 'vllm:generation_tokens_total{engine="0",model_name="tiny"}', time.monotonic() + served.LONG
        values = {tokens: 0}
        while float(values[tokens]) < 12 and time.monotonic() < end:  # the last step's count comes after its token
            status, headers, text = server.call("GET", "/metrics")
            self.assertEqual(status, 200)
            self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"))
            values = dict(re.findall(r"^([a-z_:]+(?:\{[^}]*\})?) ([0-9.e+-]+)$", text, re.M))
        self.assertEqual(float(values[tokens]), 12)
        self.assertTrue(any(name.startswith("vllm:time_to_first_token_seconds_bucket") for name in values))
        self.assertTrue(any(name.startswith("vllm:lora_requests_info{") for name in values))
        self.assertTrue(any('adapter="one"' in name and float(value) == 2 for name, value in values.items()), text)

    # --- a restart ---

    def test_registered_adapters_survive_kill_9(self):
        state = FILES.folder / "state"
        tiny_model.write_adapter(FILES.folder / "elsewhere", 9)
        flags = ("--state-dir", state)
        server = self.start(*flags)
        self.assertEqual(self.ask(server, None, "/v1/load_lora_adapter", lora_name="kept", lora_path=str(FILES.folder / "elsewhere"))[0], 200)
        self.assertEqual(self.ask(server, None, "/v1/load_lora_adapter", lora_name="gone", lora_path=str(FILES.folder / "elsewhere"))[0], 200)
        self.assertEqual(self.ask(server, None, "/v1/unload_lora_adapter", lora_name="gone")[0], 200)
        text = self.ask(server, model="kept", temperature=0)[2]["choices"][0]["text"]
        server.stop(signal.SIGKILL)
        server = self.start(*flags)
        self.assertEqual([m["id"] for m in server.call("GET", "/v1/models")[2]["data"]], ["tiny", "kept"])
        self.assertEqual(self.ask(server, model="kept", temperature=0)[2]["choices"][0]["text"], text)

    def test_generations_count_on_after_a_restart(self):
        for name, seed in (("gen1", 1), ("gen2", 2)):
            tiny_model.write_adapter(FILES.folder / name, seed)

        def load(server, name, **body):
            return self.ask(server, None, "/v1/load_lora_adapter", lora_name="kept", lora_path=str(FILES.folder / name), **body)[0]

        def generation(server):
            return server.call("GET", "/v1/lora_adapters")[2]["data"][0]["generation"]

        flags = ("--state-dir", FILES.folder / "generations")
        server = self.start(*flags)
        self.assertEqual((load(server, "gen1"), load(server, "gen2", expected_generation=1)), (200, 200))
        server.stop(signal.SIGKILL)
        server = self.start(*flags)
        self.assertEqual(generation(server), 2)
        self.assertEqual((load(server, "gen1", expected_generation=1), load(server, "gen1", expected_generation=2)), (409, 200))
        tiny_model.write_adapter(FILES.folder / "gen1", 3)
        self.assertEqual(self.ask(server, model="kept")[0], 200)
        end = time.monotonic() + served.LONG
        while generation(server) != 4 and time.monotonic() < end:
            self.ask(server, model="kept")
        self.assertEqual(server.stop(), 0)
        tiny_model.write_adapter(FILES.folder / "gen1", 4)
        self.assertEqual(generation(self.start(*flags)), 5, "its files changed while nobody looked")

    def listed(self, server):
        return {a["name"]: a for a in server.call("GET", "/v1/lora_adapters")[2]["data"]}

    def test_no_generation_is_given_twice_whatever_ends_the_server(self):
        root = FILES.folder / "twice"
        tiny_model.write_adapter(root / "given", 41)
        for kept in ((), ("--state-dir", FILES.folder / "twice-state")):
            def wait_for_another_second(than, kept=kept):  # what is promised where nothing is kept
                while not kept and int(time.time()) == int(than):
                    time.sleep(0.05)

            seen, seed = {}, 50
            for end in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
                tiny_model.write_adapter(root / "found", seed)  # changed while nobody looked
                tiny_model.write_adapter(root / "given", seed + 1)
                server = self.start("--adapter-root", root, "--lora-modules", f"given={root / 'given'}", *kept)
                ready = time.time()
                self.assertEqual(self.ask(server, model="found")[0], 200)
                self.assertEqual(self.ask(server, None, "/v1/load_lora_adapter", lora_name="guest", lora_path="found")[0], 200)
                for name in ("found", "given", "guest"):
                    now = self.listed(server)[name]
                    self.assertNotIn((name, now["generation"]), seen, f"{kept}: it had {seen.get((name, now['generation']))}")
                    seen[name, now["generation"]] = now["digest"]
                old = self.listed(server)["guest"]["generation"]
                self.assertEqual(self.ask(server, None, "/v1/unload_lora_adapter", lora_name="guest")[0], 200)
                server.stop(end)
                seed += 2
                wait_for_another_second(ready)
                server = self.start("--adapter-root", root, *kept)
                ready = time.time()
                status, headers, _ = self.ask(server, None, "/v1/load_lora_adapter", lora_name="guest", lora_path="given", expected_generation=0)
                self.assertEqual(status, 200)
                generation = self.listed(server)["guest"]["generation"]
                self.assertGreater(generation, old)
                seen["guest", generation] = self.listed(server)["guest"]["digest"]
                self.assertEqual(self.ask(server, None, "/v1/load_lora_adapter", lora_name="guest", lora_path="found", expected_generation=old)[0], 409)
                self.assertEqual(self.ask(server, None, "/v1/unload_lora_adapter", lora_name="guest")[0], 200)
                server.stop(end)
                wait_for_another_second(ready)
            if kept:
                self.assertLess(max(generation for _, generation in seen), 20, "they count from 1")

    def test_engine_and_record_agree_on_what_two_clients_did(self):
        flags = ("--state-dir", FILES.folder / "raced")
        paths = [str(tiny_model.write_adapter(FILES.folder / "raced-adapters" / name, seed)) for name, seed in (("x", 1), ("y", 2))]
        for end in (signal.SIGKILL, signal.SIGTERM):
            server = self.start(*flags)

            def change(which):
                for i in range(40):
                    self.ask(server, None, "/v1/load_lora_adapter", lora_name="x", lora_path=paths[(i + which) % 2], load_inplace=True)
                    self.ask(server, None, ("/v1/unload_lora_adapter", "/v1/pin_lora_adapter")[i % 5 == 4], lora_name="x")

            threads = [threading.Thread(target=change, args=(which,)) for which in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(served.LONG)
            facts = ("name", "generation", "digest", "pinned", "id")
            before = [[a[fact] for fact in facts] for a in self.listed(server).values()]
            server.stop(end)
            server = self.start(*flags)
            self.assertEqual([[a[fact] for fact in facts] for a in self.listed(server).values()], before)
            server.stop()

    def test_numbers_of_adapters_stay(self):
        root = FILES.folder / "numbered"
        for name in ("b", "d"):
            tiny_model.write_adapter(root / name, 1)

        def numbers(*flags):
            server = self.start("--adapter-root", root, *flags)
            found = {entry["path"]: entry["id"] for entry in server.call("GET", "/lora-adapters")[2]}
            server.stop()
            return found

        given = ("--lora-modules", f"z={root / 'b'}", f"y={root / 'd'}")
        kept = ("--state-dir", FILES.folder / "numbers")
        self.assertEqual(numbers(*given), {"z": 0, "y": 1, "b": 2, "d": 3}, "the command line's order, then the root's")
        self.assertEqual(numbers(*kept), {"b": 0, "d": 1})
        tiny_model.write_adapter(root / "a", 1)
        self.assertEqual(numbers(*kept, *given), {"b": 0, "d": 1, "z": 2, "y": 3, "a": 4})
        self.assertEqual(numbers(*kept), {"b": 0, "d": 1, "a": 4})

    def test_an_adapter_given_as_llama_cpp_gives_it_acts_from_the_start(self):
        one, two = FILES.root / "one", FILES.root / "two"

        def answers(*flags):
            server = self.start("--adapter-root", FILES.root, *flags)
            scales = {entry["path"]: entry["scale"] for entry in server.call("GET", "/lora-adapters")[2]}
            texts = {model: self.ask(server, model=model, temperature=0)[2]["choices"][0]["text"] for model in (None, "tiny", "base", "one", "two")}
            server.stop()
            return scales, texts, "".join(server.said)

        scales, texts, said = answers("--lora", one)
        self.assertEqual(scales, {"one": 1.0, "two": 0.0})
        self.assertEqual((texts[None], texts["tiny"]), (texts["one"], texts["one"]))
        self.assertEqual(len({texts["base"], texts["one"], texts["two"]}), 3)
        self.assertIn("one answers where a request names no adapter", said)
        for flags in ((), ("--lora", f"one={one}"), ("--lora-modules", f"one={one}", f"two={two}"), ("--lora", one, "--lora-init-without-apply")):
            scales, other, said = answers(*flags)
            self.assertEqual(set(scales.values()), {0.0}, flags)
            self.assertEqual((other[None], other["tiny"]), (texts["base"], texts["base"]), flags)
            self.assertNotIn("answers where", said)

    def test_a_folder_that_appears_is_listed_and_one_that_vanishes_is_not(self):
        root = FILES.folder / "moving"
        root.mkdir()
        server = self.start("--adapter-root", root)

        def names():
            return [m["id"] for m in server.call("GET", "/v1/models")[2]["data"]][1:]

        def wait_for(wanted):
            end = time.monotonic() + served.LONG
            while names() != wanted and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(names(), wanted)

        tiny_model.write_adapter(FILES.folder / "made", 5).rename(root / "new")
        wait_for(["new"])
        self.assertEqual(self.ask(server, model="new")[0], 200)
        (root / "new").rename(FILES.folder / "made")
        wait_for([])
        self.assertEqual(self.ask(server, model="new")[0], 404)

    # --- what it says of itself ---

    def test_a_misspelt_variable_is_told(self):
        names = ("CHORAL_MAX_NUM_SEQ", "CHORAL_MAX_NUM_SEQS", "CHORAL_LOG_LEVEL", "CHORAL_CUDA_GRAPHS", "CHORAL_ZZZ")
        server = served.Server(FILES.model, env=dict(zip(names, ("8", "8", "info", "0", "1"))))
        server.stop()
        told = [line for line in server.said if "is not known and has no effect" in line]
        self.assertEqual(len(told), 2, told)
        self.assertIn("CHORAL_MAX_NUM_SEQ is not known and has no effect; did you mean CHORAL_MAX_NUM_SEQS?", "".join(told))
        self.assertTrue(any(line.endswith("CHORAL_ZZZ is not known and has no effect\n") for line in told), told)

    def test_what_it_will_take_is_said_before_it_is_loaded(self):
        server = self.start("--kv-cache-memory", "16M", "--adapter-memory", "32M")
        told = [re.search(r"memory: weights (.*), KV cache (.*), adapters up to (.*), of (.*) free", line) for line in server.said]
        ready = next(i for i, line in enumerate(server.said) if "ready in" in line)
        (found,) = [match for match in told[:ready] if match]
        self.assertEqual(found[3], "32.0 MiB")
        self.assertRegex(server.said[ready], r"ready in \d+\.\d s \(files \d+\.\d s, weights \d+\.\d s")


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
