#!/usr/bin/env python3
"""LLM.generate beside the C++ API: the same requests by turns, of two processes that stay. Run by hand, on a quiet machine:

PYTHONPATH=build/dev/python throughput.py build/dev/tests/python/choral_generate_many MODEL [--prompts N] [--tokens N] [--rounds N] [NAME=ADAPTER…]
PYTHONPATH=build/dev/python throughput.py - MODEL --memory REQUESTS     resident memory while so many requests come and go

Each prompt is asked of each adapter. A round has prompts of its own, so that the prefix cache helps neither.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time


def generate(model, threads, prompts, tokens, adapters):
    from choral import LLM, SamplingParams

    names = [given.partition("=")[0] for given in adapters] or [None]
    with LLM(model, threads=threads, adapters=dict(given.split("=", 1) for given in adapters)) as llm:
        print("ready", flush=True)
        for line in sys.stdin:
            begin, cpu = time.perf_counter(), time.process_time()
            texts = [f"Question {int(line)}.{i}: what is it?" for i in range(prompts) for _ in names]
            params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
            outputs = llm.generate(texts, params, lora_request=names * prompts, use_tqdm=False)
            total = sum(sum(output.outputs[0].token_ids) for output in outputs)
            print(f"{time.perf_counter() - begin:.4f} {time.process_time() - cpu:.4f} {total}", flush=True)


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


def by_turns(commands, rounds):
    """Prints the seconds and the processor's seconds of each round, then the medians and their ratio."""
    processes = {name: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name, command in commands.items()}
    for process in processes.values():
        assert process.stdout.readline() == "ready\n"

    def ask(name, number):
        process = processes[name]
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        seconds, cpu, total = process.stdout.readline().split()
        return float(seconds), float(cpu), total

    took = {name: [] for name in processes}
    for number in range(rounds + 1):
        order = list(processes) if number % 2 else list(processes)[::-1]
        answers = {name: ask(name, number) for name in order}
        assert len({total for _, _, total in answers.values()}) == 1, "both give the same tokens"
        if number == 0:
            continue  # pages and caches are warm from here on
        for name, (seconds, cpu, _) in answers.items():
            took[name].append((seconds, cpu))
        print({name: answers[name][:2] for name in processes}, flush=True)
    for process in processes.values():
        process.stdin.close()
        process.wait()
    for i, what in enumerate(("seconds", "processor seconds")):
        median = {name: statistics.median(one[i] for one in rounds) for name, rounds in took.items()}
        ratios = [python[i] / cpp[i] for python, cpp in zip(took["Python"], took["C++"])]
        print(f"{what}: {median}; Python / C++: median of the rounds {statistics.median(ratios):.4f}, from {min(ratios):.4f} to {max(ratios):.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("adapters", nargs="*", help="NAME=PATH")
    for name, default in (("prompts", 1000), ("tokens", 16), ("rounds", 5), ("threads", 2), ("memory", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_intermixed_args()
    if given.memory:
        return memory(given.model, given.memory)
    if given.program == "-":
        return generate(given.model, given.threads, given.prompts, given.tokens, given.adapters)
    numbers = [str(given.threads), str(given.prompts), str(given.tokens)]
    ours = [sys.executable, __file__, "-", given.model, *given.adapters, "--threads", numbers[0], "--prompts", numbers[1], "--tokens", numbers[2]]
    by_turns({"C++": [given.program, given.model, *numbers, *given.adapters], "Python": ours}, given.rounds)


if __name__ == "__main__":
    main()
