#!/usr/bin/env python3
"""A model that processes divide: ranks_test.py CHORAL [unittest arguments]; 77 without MPI. `mpirun` starts them, on this machine. Answers are those of one
process; a rank that dies or says nothing ends the requests and the server, and nobody hangs."""

import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import program
import tiny_model

TEMP = tempfile.TemporaryDirectory()
HOME = pathlib.Path(TEMP.name)
MODEL, ADAPTERS = HOME / "m", HOME / "adapters"
LINES = [{"id": f"{at}-{lora}", "prompt": text, "lora": lora, "max_tokens": 12, "temperature": heat, "seed": 7, "logprobs": 2}
         for at, (text, heat) in enumerate((("The river", 0), ("x", 0.9), ("12 " * 40, 0.9))) for lora in ("one", "two", None)]
# Any number of processes on any number of cores, as root too, as in a container; and enough time to end well.
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "btl_base_warn_component_unused", "0"]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
DEADLINE = 60


def setUpModule():
    tiny_model.write_model(MODEL)
    for seed, name in enumerate(("one", "two")):
        tiny_model.write_adapter(ADAPTERS / name, seed=seed)


def on_ranks(count, *args, **kwargs):
    return subprocess.run([*MPIRUN, "-np", str(count), program.CHORAL, *map(str, args)], capture_output=True, text=True, timeout=300,
                          env=ENVIRONMENT, **kwargs)


class Server:
    """`choral serve` by several processes; ends with the block."""

    def __init__(self, ranks, *flags):
        self.started = []
        self.log = (HOME / "log").open("w+")
        self.process = subprocess.Popen([*MPIRUN, "-np", str(ranks), program.CHORAL, "serve", str(MODEL), "--port", "0", "--threads", "1", *flags],
                                        stdout=self.log, stderr=subprocess.STDOUT, env=ENVIRONMENT, start_new_session=True)
        line = self.wait_for("serving on http://")
        self.started = [self.rank(number) for number in range(ranks)]
        self.url = line[line.index("http://"):].split()[0]

    def said(self):
        return pathlib.Path(self.log.name).read_text()

    def wait_for(self, text):
        for _ in range(DEADLINE * 20):
            for line in self.said().splitlines():
                if text in line:
                    return line
            assert self.process.poll() is None, self.said()
            time.sleep(0.05)
        raise AssertionError(f"{text} was not said: {self.said()}")

    def ask(self, **members):
        body = json.dumps({"prompt": "The river", "temperature": 0, "ignore_eos": True, **members}).encode()
        request = urllib.request.Request(self.url + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return json.load(answer)["choices"][0]["text"]

    def rank(self, number):
        """The process that is this rank: one that mpirun started."""
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and f"OMPI_COMM_WORLD_RANK={number}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    return int(entry.name)
            except OSError:
                continue
        raise AssertionError(f"rank {number} is not there: {self.said()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for kill in (signal.SIGCONT, signal.SIGKILL):
            for process in (*self.started, self.process.pid):
                try:
                    os.kill(process, kill)
                except ProcessLookupError:
                    pass
        self.process.wait()
        self.log.close()


class RanksTest(program.ProgramTest):
    def answers(self, run):
        """Of LINES, by run(arguments)."""
        source, target = HOME / "in.jsonl", HOME / "out.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in LINES))
        done = run("generate", MODEL, "--input", source, "--output", target, "--adapter-root", ADAPTERS, "--verbose")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        answers = sorted(program.json_lines(target.read_text()), key=lambda line: line["id"])
        self.assertEqual(len(answers), len(LINES))
        return answers, done.stderr

    def test_answers_are_those_of_one_process(self):
        one, said = self.answers(program.choral)
        self.assertNotIn("tensor parallel", said)
        for count in (2, 3):
            several, said = self.answers(lambda *args: on_ranks(count, *args))
            self.assertIn(f"tensor parallel: {count} processes", said)
            self.assertEqual(several, one)
        sharded, _ = self.answers(lambda *args: on_ranks(2, *args, "--fully-sharded-loras"))
        self.assertEqual(sharded, one)

    def test_what_cannot_be_done_is_refused(self):
        for args, says in ((("bench", MODEL), "start `choral bench` by itself"),
                           (("generate", MODEL, "-p", "x", "--tensor-parallel-size", "3"), "2 processes were started")):
            done = on_ranks(2, *args)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr + done.stdout)

    def test_an_error_of_one_rank_ends_all(self):
        one = [program.CHORAL, "generate", "-p", "x", "--max-tokens", "2"]
        done = subprocess.run([*MPIRUN, "-np", "1", *one, str(MODEL), ":", "-np", "1", *one, str(HOME / "nowhere")], capture_output=True, text=True,
                              timeout=DEADLINE, env=ENVIRONMENT)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(str(HOME / "nowhere"), done.stderr + done.stdout)

    def expect_end(self, server):
        """mpirun and all that it started end, and not as if all were well."""
        self.assertNotEqual(server.process.wait(DEADLINE), 0)
        for process in server.started:
            for _ in range(DEADLINE * 20):
                if not pathlib.Path(f"/proc/{process}").exists():
                    break
                time.sleep(0.05)
            else:
                self.fail(f"process {process} lives on: {server.said()}")

    def test_a_rank_that_dies_at_rest(self):
        with Server(2) as server:
            self.assertTrue(server.ask(max_tokens=3))
            os.kill(server.rank(1), signal.SIGKILL)
            self.expect_end(server)

    def test_a_rank_that_dies_in_the_midst_of_an_answer(self):
        with Server(2) as server:
            killer = threading.Timer(0.3, os.kill, (server.rank(1), signal.SIGKILL))
            killer.start()
            with self.assertRaises((OSError, http.client.HTTPException)):
                while True:  # answers are short, and there is always one
                    server.ask(max_tokens=200)
            killer.join()
            self.expect_end(server)

    def test_a_rank_that_stops(self):
        with Server(2, "--rank-timeout", "5") as server:
            self.assertTrue(server.ask(max_tokens=3))
            os.kill(server.rank(1), signal.SIGSTOP)
            with self.assertRaises(urllib.error.HTTPError) as raised:
                server.ask(max_tokens=3)
            self.assertEqual(raised.exception.code, 503)
            self.assertIn("rank 1", json.load(raised.exception)["error"]["message"])
            server.wait_for("has said nothing for 5 s (--rank-timeout)")
            os.kill(server.rank(1), signal.SIGCONT)  # who is stopped takes no leave either
            self.expect_end(server)


if __name__ == "__main__":
    program.CHORAL = os.path.abspath(sys.argv.pop(1))
    if not shutil.which("mpirun") or not (pathlib.Path(program.CHORAL).parent / "libchoral_mpi.so").exists():
        print("ranks: there is no mpirun, or Choral was built without MPI (Debian: openmpi-bin, libopenmpi-dev)")
        sys.exit(77)
    unittest.main()
