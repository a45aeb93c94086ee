#!/usr/bin/env python3
"""choral pull against a hub on localhost: pull_test.py CHORAL [unittest arguments]. With the package huggingface_hub (./dev test
installs it) also both ways with that client over one cache."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import program
import small_hub
import tiny_model


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).iterdir())}


class PullTest(program.ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.made.name)
        cls.model = files_of(tiny_model.write_model(folder / "model"))
        cls.adapter = files_of(tiny_model.write_adapter(folder / "adapter", 1))

    @classmethod
    def tearDownClass(cls):
        cls.made.cleanup()

    def setUp(self):
        self.repository = small_hub.Repository({**self.model, "README.md": b"# Tiny", "original/params.json": b"{}"},
                                               large=["model.safetensors"])
        self.hub = small_hub.Hub({"org/tiny": self.repository,
                                  "org/tiny-lora": small_hub.Repository(self.adapter, large=["adapter_model.safetensors"])})
        self.addCleanup(self.hub.close)
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.cache = pathlib.Path(temp.name) / "hub"
        self.env = {"HF_ENDPOINT": self.hub.endpoint, "HF_HUB_CACHE": str(self.cache), "HF_TOKEN": "", "HF_HUB_OFFLINE": "",
                    "HUGGING_FACE_HUB_TOKEN": "", "HF_TOKEN_PATH": str(self.cache.parent / "token")}

    def pull(self, *args, **env):
        return pathlib.Path(self.run_ok("pull", *args, env={**self.env, **env}).stdout.strip())

    def pull_fails(self, code, *args, says=(), **env):
        return self.run_fails(code, "pull", *args, says=says, env={**self.env, **env})

    def blob(self, name="model.safetensors"):
        content = self.repository.files[name]
        return self.cache / "models--org--tiny" / "blobs" / small_hub.hashlib.sha256(content).hexdigest()

    def test_what_was_pulled_is_served_by_its_name(self):
        missing = self.run_fails(3, "generate", "org/tiny", "--prompt", "x", says=["choral pull org/tiny"], env=self.env)
        self.assertNotIn("refs", missing.stderr)
        path = self.pull("org/tiny")
        self.assertEqual(path, self.cache / "models--org--tiny" / "snapshots" / self.repository.commit)
        for name, content in self.model.items():
            self.assertEqual((path / name).read_bytes(), content)
            self.assertEqual(os.readlink(path / name).split("/")[:3], ["..", "..", "blobs"])
        self.assertFalse((path / "README.md").exists() or (path / "original").exists())
        self.assertEqual((path.parent.parent / "refs" / "main").read_text(), self.repository.commit)
        self.pull("org/tiny-lora")
        plain = self.run_ok("generate", "org/tiny", "--prompt", "x", "--temperature", "0", env=self.env).stdout
        adapted = self.run_ok("generate", "org/tiny", "--lora", "org/tiny-lora", "--prompt", "x", "--temperature", "0", env=self.env).stdout
        self.assertNotEqual(plain, adapted)

    def test_what_is_there_is_not_fetched_again(self):
        self.pull("org/tiny")
        asked = len(self.hub.files_asked())
        again = self.run_ok("pull", "org/tiny", env=self.env)
        self.assertIn("all there already", again.stderr)
        self.assertEqual(len(self.hub.files_asked()), asked)

    def test_revisions_are_kept_apart(self):
        self.repository.revisions["refs/pr/1"] = self.repository.commit
        self.pull("org/tiny@refs/pr/1")
        folder = self.cache / "models--org--tiny"
        self.assertEqual((folder / "refs" / "refs" / "pr" / "1").read_text(), self.repository.commit)
        self.assertFalse((folder / "refs" / "main").exists())
        self.run_ok("generate", "org/tiny@refs/pr/1", "--prompt", "x", env=self.env)
        self.run_ok("generate", f"org/tiny@{self.repository.commit}", "--prompt", "x", env=self.env)
        self.run_fails(3, "generate", "org/tiny", "--prompt", "x", says=["'main'"], env=self.env)
        self.pull("org/tiny", "--revision", self.repository.commit)
        self.pull_fails(3, "org/tiny@v9", says=["org/tiny@v9", "404"])

    def test_a_cut_download_goes_on_where_it_stopped(self):
        self.hub.cut_after = 10_000
        self.pull("org/tiny")
        self.assertEqual([r for _, path, r in self.hub.asked if path.startswith("/storage/")], [None, "bytes=10000-"])

    def test_another_process_goes_on_too(self):
        content = self.repository.files["model.safetensors"]
        self.blob().parent.mkdir(parents=True)
        begun = self.blob().with_name(self.blob().name + ".incomplete")
        begun.write_bytes(content[:5000])
        self.pull("org/tiny")
        self.assertIn("bytes=5000-", [r for _, _, r in self.hub.asked])
        self.assertFalse(begun.exists())
        self.assertEqual(self.blob().read_bytes(), content)

    def test_a_server_without_ranges_sends_it_all_again(self):
        self.hub.ranges = False
        self.hub.cut_after = 10_000
        self.pull("org/tiny")
        self.assertEqual(self.blob().read_bytes(), self.repository.files["model.safetensors"])

    def test_a_server_that_never_comes_further_is_given_up(self):
        self.hub.ranges = False
        self.hub.cut_after, self.hub.cuts = 10_000, 1000
        self.pull_fails(8, "org/tiny", says=["model.safetensors"])

    def test_what_has_another_hash_is_not_kept(self):
        content = self.repository.files["model.safetensors"]
        self.hub.sends["model.safetensors"] = content[:-1] + bytes([content[-1] ^ 1])
        self.pull_fails(4, "org/tiny", says=["model.safetensors", "hash"])
        self.assertFalse(self.blob().exists())
        self.assertFalse((self.cache / "models--org--tiny" / "refs" / "main").exists())
        self.hub.sends = {"tokenizer.json": b"x" * len(self.model["tokenizer.json"])}
        self.pull_fails(4, "org/tiny", says=["tokenizer.json", "hash"])
        self.hub.sends = {"tokenizer.json": self.model["tokenizer.json"] + b" and more"}
        self.pull_fails(6, "org/tiny", says=["tokenizer.json", "more than"])
        self.hub.sends = {}
        self.pull("org/tiny")

    def test_a_busy_hub_is_asked_again(self):
        self.hub.failing = 2
        self.pull("org/tiny")
        self.hub.failing = 1000
        self.pull_fails(8, "org/tiny", says=["503"])

    def test_a_hub_that_asks_for_time_gets_it(self):
        for head in {"Retry-After": "2"}, {"ratelimit": '"api";r=0;t=2'}:
            self.hub.failing, self.hub.failing_head = 1, head
            self.hub.times.clear()
            self.pull("org/tiny", "--revision", self.repository.commit)
            self.assertGreaterEqual(self.hub.times[1] - self.hub.times[0], 2)  # else half a second
        self.hub.failing, self.hub.failing_head = 1, {"Retry-After": "100000"}
        self.pull_fails(8, "org/tiny", says=["503", "asks to wait 100000 s"])

    def test_a_token_comes_from_a_file_too(self):
        self.repository.token = "hf_secret"
        token = self.cache.parent / "token"
        token.write_text("hf_secret\n")
        self.pull("org/tiny")
        self.pull_fails(11, "org/tiny", says=["no access"], HF_TOKEN="hf_other")  # a variable goes first
        self.pull("org/tiny", HF_TOKEN="\n", HUGGING_FACE_HUB_TOKEN=" hf_secret ", HF_TOKEN_PATH="/absent")
        self.pull_fails(11, "org/tiny", says=["HF_TOKEN"], HF_HUB_DISABLE_IMPLICIT_TOKEN="1")
        home = self.cache.parent / "home"
        home.mkdir()
        token.rename(home / "token")
        self.pull("org/tiny", HF_TOKEN_PATH="", HF_HOME=str(home))
        self.pull_fails(2, "org/tiny", says=["the hub's token", str(home)], HF_TOKEN_PATH=str(home))

    def test_a_token_goes_to_the_hub_alone(self):
        self.repository.token = "hf_secret"
        refused = self.pull_fails(11, "org/tiny", says=["HF_TOKEN"])
        self.assertIn("401", refused.stderr)
        self.pull_fails(11, "org/tiny", says=["no access"], HF_TOKEN="hf_other")
        self.hub.tokens_at_storage.clear()
        done = self.run_ok("pull", "org/tiny", env={**self.env, "HF_TOKEN": "hf_secret"})
        self.assertEqual(self.hub.tokens_at_storage, [None])
        self.assertNotIn("hf_secret", done.stdout + done.stderr)

    def test_names_of_the_hub_stay_in_their_folder(self):
        good = {"size": 1, "blobId": "a" * 40}
        for name in ("../../../escape", "/tmp/escape", "a/../../b.json"):
            self.hub.listing = {"sha": self.repository.commit, "siblings": [{"rfilename": name, **good}]}
            self.pull_fails(4, "org/tiny", says=["no name of a file"])
        self.hub.listing = {"sha": "../../x", "siblings": []}
        self.pull_fails(4, "org/tiny", says=["no commit"])
        self.hub.listing = {"sha": self.repository.commit, "siblings": [{"rfilename": "config.json", "size": 1 << 60, "blobId": "a" * 40}]}
        self.pull_fails(5, "org/tiny")
        self.hub.listing["siblings"].append({"rfilename": "m.safetensors", **good})
        self.pull_fails(7, "org/tiny", says=["disk"])
        self.assertFalse((self.cache.parent / "escape").exists())

    def test_wrong_usage(self):
        for name in ("", "a/b/c", "../x", "org/tiny@..", "org/.x"):
            self.pull_fails(2, name)
        self.pull_fails(2)
        self.pull_fails(8, "org/tiny", says=["HF_HUB_OFFLINE"], HF_HUB_OFFLINE="1")
        self.pull_fails(2, "org/tiny", says=["http"], HF_ENDPOINT="ftp://somewhere")
        self.pull_fails(8, "org/tiny", HF_ENDPOINT="http://127.0.0.1:9")
        self.pull_fails(11, "org/nobody")

    def test_gguf_is_one_file(self):
        self.hub.repositories["org/g"] = small_hub.Repository({"g.Q4_0.gguf": b"GGUF1", "g.Q8_0.gguf": b"GGUF22", "config.json": b"{}"},
                                                              large=["g.Q4_0.gguf", "g.Q8_0.gguf"])
        self.pull_fails(2, "org/g", says=["--file", "g.Q8_0.gguf"])
        path = self.pull("org/g", "--file", "q8_0")
        self.assertEqual((path.name, path.read_bytes()), ("g.Q8_0.gguf", b"GGUF22"))
        self.run_fails(4, "generate", "org/g", "--prompt", "x", says=["g.Q8_0.gguf"], env=self.env)

    def test_two_at_once_fetch_once(self):
        self.hub.hold = threading.Event()
        both = [subprocess.Popen([program.CHORAL, "pull", "org/tiny"], env={**os.environ, **self.env}, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for _ in range(2)]
        end = time.monotonic() + 60
        while True:  # until one fetches the large file, and both know of it
            asked = [path for _, path, _ in self.hub.asked]
            if any(path.startswith("/storage/") for path in asked) and sum(path.startswith("/api/") for path in asked) >= 2:
                break
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        self.hub.hold.set()
        for process in both:
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, out + err)
        self.assertEqual(sum(path.startswith("/storage/") for _, path, _ in self.hub.asked), 1)

    @unittest.skipUnless(importlib.util.find_spec("huggingface_hub"), "the package huggingface_hub is not here; ./dev test installs it")
    def test_the_cache_is_huggingface_hubs(self):
        def theirs(*arguments):
            code = "import sys, huggingface_hub as h; print(h.snapshot_download(sys.argv[1], local_files_only=len(sys.argv) > 2))"
            done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120,
                                  env={**os.environ, **self.env, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return pathlib.Path(done.stdout.strip().splitlines()[-1])

        ours = self.pull("org/tiny")
        self.assertEqual(theirs("org/tiny", "local"), ours)
        asked = len(self.hub.files_asked())
        theirs("org/tiny")  # what we left out comes, what is there does not
        fetched = {path.rsplit("/", 1)[1] for path in self.hub.files_asked()[asked:]}
        self.assertEqual(fetched, {"README.md", "params.json"})
        path = theirs("org/tiny-lora")
        asked = len(self.hub.files_asked())
        self.assertEqual(self.pull("org/tiny-lora"), path)
        self.assertEqual(len(self.hub.files_asked()), asked)


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    if not importlib.util.find_spec("huggingface_hub") and (other := os.environ.pop("CHORAL_CLIENTS_PYTHON", None)):
        os.execv(other, [other, sys.argv[0], program.CHORAL, *sys.argv[1:]])
    unittest.main()
