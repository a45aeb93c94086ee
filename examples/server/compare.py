#!/usr/bin/env python3
"""Asks several models of a running server the same question at once and shows their answers with their speeds.

  compare.py URL QUESTION MODEL…        e.g. compare.py http://127.0.0.1:8000 "Who are you?" base pirate yoda

Nothing but Python's own library: each answer is one streaming request, and `model` names the base or an adapter.
"""

import concurrent.futures
import json
import shutil
import sys
import textwrap
import time
import urllib.request


def ask(url, model, question):
    """The answer, the seconds to its first piece, and the tokens a second after it."""
    body = {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 48, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    begin = time.monotonic()
    first, text, tokens = None, "", 0
    with urllib.request.urlopen(request, timeout=300) as answer:
        for line in answer:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            event = json.loads(line[len(b"data: "):])
            if "error" in event:
                raise RuntimeError(event["error"]["message"])
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
            for choice in event["choices"]:
                if piece := choice["delta"].get("content"):
                    first = first or time.monotonic()
                    text += piece
    first = first or time.monotonic()
    return text.strip(), first - begin, (tokens - 1) / max(time.monotonic() - first, 1e-9)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    url, question, models = sys.argv[1].rstrip("/"), sys.argv[2], sys.argv[3:]
    print(f"{question}\n")
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
        answers = list(pool.map(lambda model: ask(url, model, question), models))
    name_width = max(map(len, models))
    width = max(40, min(shutil.get_terminal_size().columns, 120) - name_width - 3)
    for model, (text, first_s, speed) in zip(models, answers):
        head = [f"{model:>{name_width}} | ", " " * name_width + " | "]
        lines = textwrap.wrap(text, width) or ["(nothing)"]
        for i, line in enumerate(lines):
            print(head[min(i, 1)] + line)
        print(f"{'':>{name_width}} | {first_s * 1000:.0f} ms to the first token, then {speed:.0f} tokens/s")
    print(f"\n{len(models)} answers together in {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
