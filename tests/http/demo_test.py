#!/usr/bin/env python3
"""The demo's server and its side-by-side program, with the real model: demo_test.py CHORAL COMPARE.PY ADAPTERS. Without
CHORAL_DEMO_MODEL, 77: skipped."""

import os
import subprocess
import sys

import served

VOICES = ["smollm2", "pirate", "yoda", "butler", "emoji", "json", "sql"]


def main():
    served.CHORAL, compare, adapters = sys.argv[1:4]
    model = os.environ.get("CHORAL_DEMO_MODEL")
    if not model:
        print("skipped: CHORAL_DEMO_MODEL names no model")
        return 77
    server = served.Server(model, "--served-model-name", "smollm2", "--adapter-root", adapters)
    listed = [m["id"] for m in server.call("GET", "/v1/models")[2]["data"]]
    done = subprocess.run([sys.executable, compare, f"http://127.0.0.1:{server.port}", "What is the capital of France?", *VOICES],
                          capture_output=True, text=True, timeout=served.LONG)
    code = server.stop()
    print(done.stdout, done.stderr)
    spoken = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.split("|")[0].strip() in VOICES and "|" in line]
    fine = done.returncode == 0 and code == 0 and len(spoken) == len(VOICES) and len(set(spoken)) > len(VOICES) // 2
    return 0 if fine and sorted(listed) == sorted(VOICES) and "Paris" in spoken[0] else 1


if __name__ == "__main__":
    sys.exit(main())
