#!/usr/bin/env python3
"""A client that goes on elsewhere when its server dies (docs/serving/resume.md). Here it kills that server itself, in the middle of a streamed
answer, and then compares what it got with an answer that nobody disturbed. Exit code 0: they are the same, byte for byte.

go_on.py URL [--ca CERTIFICATE] [--max-tokens N] REPLICA=PID…
A replica is what the header X-Choral-Replica of its answers says.
"""

import argparse
import contextlib
import http.client
import json
import os
import signal
import ssl
import sys
import time
import urllib.parse

CUT_AFTER = 40  # pieces of the answer
TRIES = 20  # a moment passes before a router misses a replica


def events(url, context, body):
    """Who answers, then each event of the stream; it ends early when the server dies."""
    place = urllib.parse.urlsplit(url)
    connection = (http.client.HTTPSConnection(place.hostname, place.port, timeout=600, context=context) if place.scheme == "https"
                  else http.client.HTTPConnection(place.hostname, place.port, timeout=600))
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise ConnectionError(f"{answer.status} {answer.read().decode('utf-8', 'replace')}")
        yield answer.headers["X-Choral-Replica"]
        with contextlib.suppress(http.client.HTTPException, OSError):
            while (line := answer.readline()).endswith(b"\n"):
                if line.startswith(b"data: "):
                    yield line[6:].strip()


class Answer:
    """What came of it so far, from all replicas that took part."""

    def __init__(self, shows):
        self.shows, self.text, self.pieces, self.replicas, self.is_whole = shows, "", [], [], False

    def begin(self, stream):
        self.replicas.append(next(stream))

    def read(self, stream, until=None):
        """To the stream's end, or until there are so many pieces."""
        for event in stream:
            if event == b"[DONE]":
                self.is_whole = True
                return
            chunk = json.loads(event)
            piece = "".join(choice["text"] for choice in chunk["choices"])
            self.text += piece
            if self.shows:
                print(piece, end="", flush=True)
            if "resume" in chunk:
                self.pieces.append(chunk["resume"])
            if len(self.pieces) == until:
                return


def go_on(answer, url, context, body):
    """At whichever replica is there, until the answer is whole."""
    for _ in range(TRIES):
        stream = events(url, context, {**body, "resume": answer.pieces})
        try:
            answer.begin(stream)
        except OSError as error:
            print(f"[{error}; once more]", file=sys.stderr)
            time.sleep(0.5)
            continue
        answer.read(stream)
        if answer.is_whole:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("replicas", nargs="+", metavar="REPLICA=PID")
    parser.add_argument("--ca", help="a certificate that is trusted")
    parser.add_argument("--max-tokens", type=int, default=300)
    options = parser.parse_args()
    pids = {name: int(pid) for name, _, pid in (replica.rpartition("=") for replica in options.replicas)}
    context = ssl.create_default_context(cafile=options.ca) if options.ca else None
    body = {"model": "base", "prompt": "The long story of a ship and its crew.\n\nOnce upon a time", "seed": 7,
            "temperature": 0.6, "repetition_penalty": 1.1, "max_tokens": options.max_tokens, "ignore_eos": True, "stream": True,
            "stream_options": {"include_resume": True}}

    undisturbed, answer = Answer(shows=False), Answer(shows=True)
    stream = events(options.url, context, body)
    undisturbed.begin(stream)
    undisturbed.read(stream)

    stream = events(options.url, context, body)
    answer.begin(stream)
    answer.read(stream, until=CUT_AFTER)
    dead = answer.replicas[-1]
    os.kill(pids[dead], signal.SIGKILL)
    print(f"\n\n[{dead} is killed]\n")
    answer.read(stream)  # what was on its way
    if answer.is_whole:
        sys.exit("the answer was whole before its replica was dead: ask for more tokens")
    go_on(answer, options.url, context, body)
    is_same = answer.is_whole and answer.text == undisturbed.text
    print(f"\n\n[{answer.replicas[-1]} went on. {len(answer.text.encode())} bytes, "
          f"{'the same as' if is_same else 'NOT the same as'} those of the answer that {undisturbed.replicas[0]} gave undisturbed]")
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
