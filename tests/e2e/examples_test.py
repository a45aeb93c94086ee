#!/usr/bin/env python3
"""Runs the examples: examples_test.py GENERATE STREAMING_BATCH C_MAIN C_EVENT_LOOP. The demo model is used when CHORAL_DEMO_MODEL names it."""

import itertools
import json
import os
import subprocess
import sys
import tempfile

import tiny_model


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=280)


def check(condition, done):
    if not condition:
        sys.exit(f"{done.args}: exit {done.returncode}\n{done.stdout}{done.stderr}")


generate, streaming_batch, in_c, event_loop = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    # A long context: the answer that is cancelled must not be complete before that, however busy the machine is.
    model = os.environ.get("CHORAL_DEMO_MODEL") or str(tiny_model.write_model(folder + "/tiny", context=16384))
    done = run(generate, model, "The capital of France is")
    check(done.returncode == 0 and len(done.stdout) > 1, done)
    done = run(generate, folder + "/absent", "x")
    check(done.returncode == 3 and "absent" in done.stderr, done)
    done = run(streaming_batch, model)
    check(done.returncode == 0, done)
    check("cancelled" in done.stdout and done.stdout.count("tokens") >= 3, done)

    tiny = str(tiny_model.write_model(folder + "/for c"))
    adapter = str(tiny_model.write_adapter(folder + "/adapter", 1))
    texts = []
    for more in [], [adapter]:
        done = run(in_c, tiny, 'say "\\"', *more)
        check(done.returncode == 0, done)
        whole = json.loads(done.stderr.splitlines()[-1])  # behind warnings
        check(done.stdout == whole["text"] + "\n" and whole.get("lora") == ("mine" if more else None), done)
        texts.append(whole["text"])
    check(texts[0] != texts[1], done)
    for arguments, says in ((folder + "/absent", "x"), "the model: not_found: "), ((tiny, "x", folder), "the adapter: not_found: "):
        done = run(in_c, *arguments)
        check(done.returncode == 1 and says in done.stderr, done)

    prompts = ["one", "two and more", "three"]
    done = run(event_loop, tiny, *prompts)
    check(done.returncode == 0 and "memory: " in done.stderr, done)
    alone = [prompt + json.loads(run(in_c, tiny, prompt).stderr.splitlines()[-1])["text"] + "\n" for prompt in prompts]
    check(any(done.stdout == "".join(order) for order in itertools.permutations(alone)), done)
    done = run(event_loop, folder + "/absent", "x")
    check(done.returncode == 1 and "the model: not_found: " in done.stderr, done)
