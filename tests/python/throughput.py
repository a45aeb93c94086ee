#!/usr/bin/env python3
"""LLM.generate beside the C++ API: the same requests, by turns, each in a process of its own. Run by hand, on a quiet machine:

PYTHONPATH=build/dev/python throughput.py build/dev/tests/python/choral_generate_many MODEL [--prompts N] [--tokens N] [--rounds N] [ADAPTER…]
PYTHONPATH=build/dev/python throughput.py - MODEL --memory REQUESTS     resident memory while so many requests come and go
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time


def generate(model, threads, prompts, tokens, adapters):
    from choral import LLM, SamplingParams

    names = [given.partition("=")[0] for given in adapters]
    with LLM(model, threads=threads, adapters=dict(given.split("=", 1) for given in adapters)) as llm:
        texts = [f"Question {i}: what is it?" for i in range(prompts)]
        who = [names[i % len(names)] if names else None for i in range(prompts)]
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        begin = time.perf_counter()
        outputs = llm.generate(texts, params, lora_request=who, use_tqdm=False)
        total = sum(sum(output.outputs[0].token_ids) for output in outputs)
        print(f"{time.perf_counter() - begin:.4f} {total}")


def memory(model, requests):
    from choral import LLM, SamplingParams

    def resident():
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

    with LLM(model, threads=1) as llm:
        params = SamplingParams(temperature=0, max_tokens=2, logprobs=1)
        for done in range(0, requests, 2000):
            if done in (2000, 10_000) or done % 20_000 == 0:
                print(f"{done} requests: {resident():.1f} MB", flush=True)
            llm.generate([[1, 2, 3, 4 + i % 50] for i in range(2000)], params, use_tqdm=False)
        print(f"{requests} requests: {resident():.1f} MB")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("adapters", nargs="*", help="NAME=PATH")
    for name, default in (("prompts", 1000), ("tokens", 16), ("rounds", 5), ("threads", 2), ("memory", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    if given.memory:
        return memory(given.model, given.memory)
    common = [given.model, str(given.threads), str(given.prompts), str(given.tokens), *given.adapters]
    if given.program == "-":
        return generate(given.model, given.threads, given.prompts, given.tokens, given.adapters)
    ours = [sys.executable, __file__, "-", given.model, *given.adapters, "--threads", str(given.threads), "--prompts", str(given.prompts), "--tokens", str(given.tokens)]
    took = {"C++": [], "Python": []}
    for _ in range(given.rounds):
        sums = set()
        for name, command in (("C++", [given.program, *common]), ("Python", ours)):
            seconds, total = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            took[name].append(float(seconds))
            sums.add(total)
        assert len(sums) == 1, "both give the same tokens"
        print({name: one[-1] for name, one in took.items()}, flush=True)
    print({name: round(statistics.median(one), 3) for name, one in took.items()}, "ratio of medians", round(statistics.median(took["Python"]) / statistics.median(took["C++"]), 3))


if __name__ == "__main__":
    main()
