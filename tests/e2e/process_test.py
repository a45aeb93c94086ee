#!/usr/bin/env python3
"""The program at the borders of its process: descriptors closed or full, names that lead nowhere, threads, memory and files that
cannot be had, outputs that cannot be replaced. process_test.py CHORAL [unittest arguments]. Makes its own model; needs nothing else.
What needs another user or a mount is skipped, with the reason, where this one may not."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import program
import tiny_model

TEMP = tempfile.TemporaryDirectory()
MODEL = pathlib.Path(TEMP.name) / "tiny"
GREEDY = ("--temperature", "0", "--max-tokens", "4", "--ignore-eos")
STRANGER = 54000 + os.getpid() % 1000  # a user of whom nothing else runs
LINE = {"prompt": "Hello", "temperature": 0, "max_tokens": 4, "ignore_eos": True}


def run(*args, redirect="", stdin="", uid=None, limits=(), env=None):
    """`redirect` as a shell has it, e.g. "2>&-"; `limits` of the process, by resource's names."""

    def prepare():
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        for name, value in limits:
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))

    return subprocess.run(["/bin/sh", "-c", f'exec "$0" "$@" {redirect}', program.CHORAL, *map(str, args)], input=stdin, capture_output=True,
                          text=True, errors="replace", timeout=120, env={**os.environ, **(env or {})}, preexec_fn=prepare)


def stranger():
    """A user for whom permissions count; nothing: this one."""
    return STRANGER if os.geteuid() == 0 else None


class ProcessTest(program.ProgramTest):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=TEMP.name))
        self.folder.chmod(0o777)
        self.source = self.folder / "in.jsonl"
        self.source.write_text(json.dumps(LINE) + "\n")

    def expect(self, code, done, *says):
        self.assertEqual(done.returncode, code, f"{done.stdout}{done.stderr}")
        for text in says:
            self.assertIn(text, done.stderr)
        return done

    def batch(self, code, output, *says, **kwargs):
        return self.expect(code, run("generate", MODEL, "--input", self.source, "--output", output, **kwargs), *says)

    def expect_answers(self, path):
        answers = program.json_lines(path.read_text())
        self.assertEqual([len(a["token_ids"]) for a in answers], [4])

    def need_stranger(self):
        """Root's files are readable and writable whatever their mode."""
        if os.geteuid() == 0:
            done = run("--version", uid=STRANGER)
            if done.returncode != 0:
                self.skipTest(f"another user cannot run the program: {done.stderr}")
        return stranger()

    # --- standard input, output and error ---

    def test_a_stderr_that_takes_nothing_takes_nothing_else_away(self):
        args = ("generate", MODEL, "-p", "Hello", "-v", *GREEDY)
        want = self.expect(0, run(*args)).stdout
        for redirect in ("2>/dev/full", "2>&-"):
            for env in ({}, {"CHORAL_LOG_LEVEL": "debug"}):
                self.assertEqual(self.expect(0, run(*args, redirect=redirect, env=env)).stdout, want)
            self.expect(0, run("generate", MODEL, "-p", "a", "-p", "b", *GREEDY, redirect=redirect))
            self.expect(3, run("generate", "/no/such/model", "-p", "x", redirect=redirect))
            self.expect(2, run("generat", redirect=redirect))
            self.expect(2, run(redirect=redirect))
            self.expect(0, run("tokenize", MODEL, "--text", "x", redirect=redirect))
            self.expect(2, run("chat", MODEL, redirect=redirect, stdin="/nothing\n/help\n/stats\n"))
            output = self.folder / "out.jsonl"
            self.batch(0, output, redirect=redirect)
            self.expect_answers(output)

    def test_a_reader_that_goes_away(self):
        want = self.expect(0, run("generate", MODEL, "-p", "Hello", *GREEDY)).stdout
        for gone, code, answer in (("stderr", 0, want), ("stdout", -signal.SIGPIPE, None)):
            read, write = os.pipe()
            os.close(read)
            done = subprocess.run([program.CHORAL, "generate", MODEL, "-p", "Hello", *GREEDY], text=True, errors="replace", timeout=120,
                                  **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, gone: write})
            os.close(write)
            self.assertEqual((done.returncode, done.stdout), (code, answer), done.stderr)

    def test_a_closed_stdin_is_an_empty_one(self):
        self.expect(0, run("generate", MODEL, "--input", "-", redirect="<&-"), "standard input is closed or empty")
        self.expect(2, run("generate", MODEL, redirect="<&-"), "standard input is empty")
        self.expect(0, run("chat", MODEL, redirect="<&-"), "standard input is closed or empty")
        self.expect(0, run("generate", MODEL, "-p", "Hello", *GREEDY, redirect="<&-"))

    def test_a_stdout_that_takes_nothing_is_an_error(self):
        for args in (("generate", MODEL, "-p", "Hello", *GREEDY), ("generate", MODEL, "--input", self.source),
                     ("tokenize", MODEL, "--text", "x"), ("--help",), ("generate", "--help"), ("--version",), ("doctor", "-q")):
            self.expect(7, run(*args, redirect=">/dev/full"), "standard output", "No space")
            self.expect(2, run(*args, redirect=">&-"), "standard output: it is closed")

    def test_files_do_not_become_standard_files(self):
        output = self.folder / "out.jsonl"
        self.batch(0, output, redirect="<&- >&- 2>&-")
        self.expect_answers(output)

    # --- names that lead nowhere ---

    def test_every_name_has_an_answer(self):
        (self.folder / "loop").symlink_to("loop")
        (self.folder / "locked").mkdir(mode=0)
        names = [self.folder / "loop", self.folder / "loop" / "x", self.folder / ("x" * 300), self.folder / "none" / "x", self.source / "x"]
        uid = stranger()
        if os.geteuid() != 0 or run("--version", uid=uid).returncode == 0:
            names.append(self.folder / "locked" / "x")
        for name in names:
            for flags in (("--adapter-root", name), ("--lora", f"a={name}"), ("--tokenizer", name), ("--chat-template", name), ("-f", name),
                          ("--input", name), ("--input", self.source, "--output", name / "out")):
                done = run("generate", MODEL, *([] if {"-f", "--input"} & set(flags) else ["-p", "x"]), *flags,
                           uid=uid if name.parent.name == "locked" else None)
                self.assertIn(done.returncode, range(2, 12), f"{flags}: {done.stdout}{done.stderr}")
                self.assertIn(f"{name}", done.stderr)
            for args in (("generate", name, "-p", "x"), ("adapter", "check", name), ("adapter", "list", "--adapter-root", name)):
                done = run(*args, uid=uid if name.parent.name == "locked" else None)
                self.assertIn(done.returncode, range(2, 12), f"{args}: {done.stdout}{done.stderr}")
        self.expect(2, run("generate", MODEL, "-p", "x", "--adapter-root", self.folder / "loop"), "--adapter-root", "symbolic links")
        self.expect(3, run("generate", MODEL, "-p", "x", "--adapter-root", self.source), "--adapter-root", "Not a directory")

    # --- what the system does not give ---

    def test_threads_that_cannot_be_had(self):
        uid = self.need_stranger()
        args = ("generate", MODEL, "-p", "Hello", *GREEDY)
        self.expect(7, run(*args, "-t", "4", uid=uid, limits=[("NPROC", 2 if uid else 1)]), "cannot start", "ulimit -u")
        if uid is None:
            self.skipTest("this user's other processes count too: no telling how many threads are too few")
        for most in range(1, 12):
            done = run(*args, "-t", "1", uid=uid, limits=[("NPROC", most)])
            self.assertIn(done.returncode, (0, 7), done.stdout + done.stderr)
            if done.returncode == 7:
                self.assertIn("ulimit -u", done.stderr)
        self.assertEqual(done.returncode, 0, "one compute thread does with few")
        done = self.expect(7, run(*args, "-t", "200", uid=uid, limits=[("NPROC", 50)]), "of 200", "fewer --threads")

    def test_memory_is_planned_by_the_processs_limits(self):
        gib = 1 << 30
        args = ("generate", MODEL, "-p", "Hello", "-t", "2", "-v", *GREEDY)
        for name, limit in (("AS", "RLIMIT_AS (ulimit -v)"), ("DATA", "RLIMIT_DATA (ulimit -d)")):
            done = run(*args, limits=[(name, 2 * gib)])
            if done.returncode != 0 and "ddressSanitizer" in done.stderr + done.stdout:
                self.skipTest("a sanitizer takes more addresses than that")
            self.expect(0, done, f"memory: {limit} leaves ", "less than the machine has free", "raise it")
            done = run("doctor", "-q", limits=[(name, 2 * gib)])
            self.assertRegex(done.stdout, rf"memory +[12]\.\d GiB free of 2\.0 GiB, by {re.escape(limit)}; the machine has")

    def test_threads_go_by_what_the_process_may_run_on(self):
        cpu = min(os.sched_getaffinity(0))
        done = subprocess.run([program.CHORAL, "doctor", "-q", "--json"], capture_output=True, text=True, timeout=120,
                              preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        threads = next(f["text"] for f in json.loads(done.stdout)["findings"] if f["subject"] == "threads")
        self.assertTrue(threads.startswith("1 threads on 1 CPUs, 1 physical cores"), threads)

    def test_cpu_list_is_where_the_process_stays(self):
        allowed = sorted(os.sched_getaffinity(0))
        done = self.expect(0, run("doctor", "-q", "--json", "--cpu-list", str(allowed[-1])))
        threads = next(f["text"] for f in json.loads(done.stdout)["findings"] if f["subject"] == "threads")
        self.assertTrue(threads.startswith("1 threads on 1 CPUs, 1 physical cores"), threads)
        for bad in ("x", "3-1", "0,,1"):
            self.expect(2, run("doctor", "-q", f"--cpu-list={bad}"), "--cpu-list", "no list of CPUs", "0-7,16")
        self.expect(2, run("doctor", "-q", "--cpu-list", "65000"), "CPU 65000 is none that this process may use; those are")

    def test_memory_that_cannot_be_had(self):
        mib = 1 << 20
        least = next((m for m in range(16, 512, 16) if run("--version", limits=[("AS", m * mib)]).returncode == 0), None)
        if least is None:
            self.skipTest("this build (with a sanitizer?) does not even start with little address space")
        codes = set()
        for most in range(least, least + 400, 8):
            done = run("generate", MODEL, "-p", "Hello", "-t", "2", "--kv-cache-memory", "1M", *GREEDY, limits=[("AS", most * mib)])
            codes.add(done.returncode)
            self.assertIn(done.returncode, (0, 7), f"{most} MiB: {done.stdout}{done.stderr}")
            if done.returncode == 0:
                break
            self.assertIn("emory", done.stderr)
        self.assertEqual(codes, {0, 7})
        # Of the 4 GiB 128 MiB would be used.
        large = ["--kv-cache-memory", "4G", "--kv-cache-dtype", "float32", "--max-num-seqs", "1024"]
        done = run("generate", MODEL, "-p", "Hello", "-t", "2", *large, *GREEDY, limits=[("AS", (most + 32) * mib)])
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertRegex(done.stderr, r"RLIMIT_AS \(ulimit -v\) allows this process .* left: raise it, or give --kv-cache-memory")
        # One request that needs too much; those beside it do not mind.
        big = {**LINE, "prompt": "the quick " * 5_000_000}
        self.source.write_text("".join(json.dumps(line) + "\n" for line in (LINE, big, LINE)))
        output = self.folder / "out.jsonl"
        self.batch(7, output, "emory", limits=[("AS", (most + 96) * mib)])
        answers = program.json_lines(output.read_text())
        self.assertEqual([a.get("error", {}).get("code") for a in answers], [None, "resource_exhausted", None])
        # It is not tried again after each answer to another: that is for a full queue.
        big = {**LINE, "prompt": None, "messages": [{"role": "user", "content": "the quick " * 5_000_000}]}

        def pages_with(others, more):
            self.source.write_text("".join(json.dumps(line) + "\n" for line in [LINE] * others + [big]))
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
            done = run("generate", MODEL, "--input", self.source, "--output", output, "-t", "2", "--kv-cache-memory", "1M",
                       limits=[("AS", (most + more) * mib)])
            said = f"1 of {others + 1} requests failed, the first in line {others + 1}: the request cannot be read"
            return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before, said in done.stderr

        def pages_in_request(others):  # with as little memory as lets it fail there; threads' arenas make that differ from run to run
            for more in range(96, 1024, 32):
                pages, in_request = pages_with(others, more)
                if in_request:
                    return pages
            self.fail("the request never was what had too little memory")

        self.assertLess(pages_in_request(30), 2 * pages_in_request(1))

    def test_files_that_cannot_be_opened(self):
        codes = set()
        for most in range(4, 16):
            done = run("generate", MODEL, "--input", self.source, "--output", self.folder / "out.jsonl", limits=[("NOFILE", most)])
            codes.add(done.returncode)
            self.assertIn(done.returncode, (0, 7), f"{most}: {done.stdout}{done.stderr}")
            if done.returncode == 7:
                self.assertIn(f"{most} open at once", done.stderr)
                self.assertIn("ulimit -n", done.stderr)
        self.assertEqual(codes, {0, 7})

    # --- the file of answers ---

    def test_an_output_without_a_name(self):
        for flags in (("--input", self.source, "--output", ""), ("--input", ""), ("--file", "")):
            self.expect(2, run("generate", "/no/such/model", *flags), flags[-2], "empty")
        self.expect(2, run("generate", "/no/such/model", "--input", self.source, "--output="), "--output")

    def test_mode_and_owner_stay(self):
        output, saved = self.folder / "out.jsonl", self.folder / "chat.json"
        for mode in (0o600, 0o640, 0o664):
            for path in (output, saved):
                path.write_text("old\n")
                path.chmod(mode)
                if os.geteuid() == 0:
                    os.chown(path, STRANGER, STRANGER)
            self.batch(0, output)
            self.expect(0, run("chat", MODEL, stdin=f"/save {saved}\n"))
            for path in (output, saved):
                self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode)
                self.assertNotEqual(path.read_text(), "old\n")
                if os.geteuid() == 0:
                    self.assertEqual((path.stat().st_uid, path.stat().st_gid), (STRANGER, STRANGER))
        output.unlink()
        self.batch(0, output)
        umask = os.umask(0)
        os.umask(umask)
        self.assertEqual(stat.S_IMODE(output.stat().st_mode), 0o666 & ~umask)

    def test_a_file_in_a_folder_that_is_not_ones_own(self):
        uid = self.need_stranger()
        locked = self.folder / "locked"
        locked.mkdir()
        output = locked / "out.jsonl"
        output.write_text("old\n")
        output.chmod(0o666)
        locked.chmod(0o555)
        self.batch(0, output, "cannot be replaced", uid=uid)
        self.expect_answers(output)
        self.expect(0, run("chat", MODEL, stdin=f"/save {output}\n", uid=uid), f"/save: {output} cannot be replaced", "written into")
        self.assertEqual(json.loads(output.read_text()), {"messages": []})
        self.assertNotIn("replaced", self.expect(0, run("chat", MODEL, "-q", stdin=f"/save {output}\n", uid=uid)).stderr)
        requests = self.source.read_text()
        output.write_text(requests)
        done = run("generate", "/no/such/model", "--input", output, "--output", output, uid=uid)
        self.expect(2, done, f"--output {output}: it is also --input", "name another file")
        self.assertEqual(output.read_text(), requests)
        self.batch(0, output, uid=uid)
        self.batch(11, locked / "new.jsonl", "Permission denied", "--output", uid=uid)
        output.chmod(0o444)
        self.batch(11, output, "Permission denied", uid=uid)
        locked.chmod(0o777)
        self.batch(11, output, "Permission denied", uid=uid)
        self.expect_answers(output)

    def test_a_file_of_answers_that_replaces_its_requests(self):
        self.batch(0, self.source)
        self.expect_answers(self.source)

    def test_a_file_that_the_process_was_started_with(self):
        output = self.folder / "all.jsonl"
        output.write_text("older\n")
        for name, redirect in (("/dev/stdout", ">>"), ("/proc/self/fd/1", ">>"), (output, ">>"), ("/dev/fd/3", "3>>")):
            self.batch(0, name, redirect=f"{redirect}'{output}'")
        self.expect(0, run("chat", MODEL, stdin="/save /dev/stdout\n", redirect=f">>'{output}'"))
        older, *answers = output.read_text().splitlines()
        self.assertEqual(older, "older")
        self.assertEqual([len(json.loads(line)["token_ids"]) for line in answers[:4]], [4] * 4)
        self.assertEqual(json.loads("\n".join(answers[4:])), {"messages": []})
        requests = self.source.read_text()
        self.expect(2, run("generate", "/no/such/model", "--input", self.source, "--output", "/dev/fd/3", redirect=f"3>>'{self.source}'"),
                    "it is also --input")
        self.assertEqual(self.source.read_text(), requests)
        with tempfile.TemporaryFile(dir=self.folder) as nameless:
            done = subprocess.run([program.CHORAL, "generate", MODEL, "--input", self.source, "--output", "/dev/stdout"], stdout=nameless,
                                  stderr=subprocess.PIPE, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            nameless.seek(0)
            self.assertEqual(len(json.loads(nameless.read())["token_ids"]), 4)
        self.assertTrue(pathlib.Path("/dev/stdout").is_symlink())
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["all.jsonl", "in.jsonl"])

    def mount(self, beneath, file):
        done = subprocess.run(["mount", "--bind", beneath, file], capture_output=True, text=True) if shutil.which("mount") else None
        if done is None or done.returncode != 0:
            self.skipTest(f"no mount can be made here: {done.stderr if done else 'there is no program mount'}")

    def test_a_mounted_file(self):
        output, beneath = self.folder / "out.jsonl", self.folder / "beneath"
        output.touch()
        beneath.write_text("a longer text than the answer, which must not shine through\n" * 50)
        self.mount(beneath, output)
        try:
            self.batch(0, output, "mount point")
            self.expect(0, run("chat", MODEL, stdin=f"/save {output}.chat\n/save {output}\n"))
            self.assertEqual(json.loads(beneath.read_text()), {"messages": []})
            self.batch(0, output, "mount point")
        finally:
            subprocess.run(["umount", output], check=True)
        self.expect_answers(beneath)
        self.assertEqual(len(list(self.folder.glob("*.partial*"))), 0)

    def test_pipes(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.expect(2, run("chat", MODEL, stdin=f"/save {pipe}\n"), "it is a pipe")
        read = []
        reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
        reader.start()
        self.batch(0, pipe)
        reader.join()
        self.assertEqual(len(json.loads(read[0])["token_ids"]), 4)
        self.expect(0, run("chat", MODEL, stdin="/save /dev/null\n"))
        self.assertIn('"messages"', self.expect(0, run("chat", MODEL, stdin="/save -\n")).stdout)

    def start(self, *args):
        return subprocess.Popen([program.CHORAL, "generate", MODEL, *map(str, args)], stderr=subprocess.PIPE, text=True)

    def held_input(self):
        """A pipe from which the program waits for its first line, and the end to write to."""
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        return pipe, os.open(pipe, os.O_RDWR)

    def test_a_place_that_is_taken_meanwhile(self):
        output = self.folder / "out.jsonl"
        pipe, keep = self.held_input()
        with self.start("--input", pipe, "--output", output) as p:
            p.stderr.readline()  # it has looked at the place
            output.mkdir()
            os.write(keep, self.source.read_bytes())
            os.close(keep)
            said = p.communicate(timeout=120)[1]
        self.assertEqual(p.returncode, 2, said)
        (partial,) = self.folder.glob("out.jsonl.partial-*")
        self.assertIn(f"the answers are in {partial}", said)
        self.expect_answers(partial)

    def test_a_file_that_is_mounted_meanwhile(self):
        output, beneath = self.folder / "out.jsonl", self.folder / "beneath"
        output.touch()
        beneath.write_text("older\n" * 1000)
        pipe, keep = self.held_input()
        with self.start("--input", pipe, "--output", output) as p:
            p.stderr.readline()
            try:
                self.mount(beneath, output)
                os.write(keep, self.source.read_bytes())
            finally:
                os.close(keep)
                said = p.communicate(timeout=120)[1]
        subprocess.run(["umount", output], check=True)
        self.assertEqual(p.returncode, 0, said)
        self.expect_answers(beneath)
        self.assertFalse(list(self.folder.glob("*.partial*")))

    def test_no_file_looks_complete_that_was_stopped(self):
        output = self.folder / "out.jsonl"
        pipe, keep = self.held_input()
        with self.start("--input", pipe, "--output", output) as p:
            p.stderr.readline()
            self.assertFalse(list(self.folder.glob("out*")), "there is no file before there is an answer")
            p.send_signal(signal.SIGTERM)
            p.communicate(timeout=120)
        os.close(keep)
        self.assertEqual(p.returncode, -signal.SIGTERM)
        self.assertFalse(list(self.folder.glob("out*")))
        self.source.write_text((json.dumps({**LINE, "max_tokens": 250, "n": 20}) + "\n") * 20000)
        with self.start("--input", self.source, "--output", output) as p:
            while not list(self.folder.glob("out.jsonl.partial-*")) and p.poll() is None:
                time.sleep(0.01)
            p.send_signal(signal.SIGINT)
            p.send_signal(signal.SIGTERM)  # now, whatever the first one wanted
            p.communicate(timeout=120)
        self.assertIn(p.returncode, (9, -signal.SIGINT, -signal.SIGTERM))
        self.assertFalse(output.exists())


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    os.chmod(TEMP.name, 0o755)
    tiny_model.write_model(MODEL)
    unittest.main()
