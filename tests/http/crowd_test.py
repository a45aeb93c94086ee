#!/usr/bin/env python3
"""Many clients at once: crowd_test.py CHORAL [unittest arguments]. 200 streams of seven models beside 1,000 connections that say nothing;
each stream's text is what the same request gets alone."""

import asyncio
import json
import os
import resource
import sys
import unittest

import served
from served import tiny_model

IDLE, STREAMS, ADAPTERS = 1000, 200, 6
FILES = served.Files()
SERVER = None


def setUpModule():
    global SERVER
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= hard < 2 * IDLE:
        raise unittest.SkipTest(f"this process may open {hard} files; {2 * IDLE} are wanted")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * IDLE, hard))
    for seed in range(ADAPTERS):
        tiny_model.write_adapter(FILES.root / f"a{seed}", seed)
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root, "--max-num-seqs", str(STREAMS))


def tearDownModule():
    if SERVER:
        assert SERVER.stop() == 0, "".join(SERVER.said)


def request(i):
    return {"model": ("tiny", *(f"a{k}" for k in range(ADAPTERS)))[i % (ADAPTERS + 1)], "prompt": f"Item {i}", "max_tokens": 16 + i % 17,
            "temperature": i % 2, "seed": i, "ignore_eos": True}


async def streamed(i):
    """The text and the number of tokens."""
    reader, writer = await asyncio.open_connection("127.0.0.1", SERVER.port)
    body = json.dumps({**request(i), "stream": True, "return_token_ids": True}).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    answer = (await reader.read()).decode()
    writer.close()
    events = [line.removeprefix("data: ") for line in answer.split("\n") if line.startswith("data: ")]
    assert answer.startswith("HTTP/1.1 200 ") and events[-1].strip() == "[DONE]", answer[:500]
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    return "".join(choice["text"] for choice in choices), sum(len(choice.get("token_ids") or []) for choice in choices)


def open_files():
    return len(os.listdir(f"/proc/{SERVER.process.pid}/fd"))


class CrowdTest(unittest.TestCase):
    def test_streams_beside_silent_connections_are_what_they_are_alone(self):
        alone = [SERVER.post("/v1/completions", **request(i))["choices"][0]["text"] for i in range(STREAMS)]
        self.assertGreater(len(set(alone)), STREAMS // 2)
        before = open_files()

        async def crowd():
            silent = [await asyncio.open_connection("127.0.0.1", SERVER.port) for _ in range(IDLE)]
            together = await asyncio.gather(*map(streamed, range(STREAMS)))
            for _, writer in silent:
                writer.close()
            return together

        together = asyncio.run(crowd())
        self.assertEqual([text for text, _ in together], alone)
        self.assertEqual([tokens for _, tokens in together], [request(i)["max_tokens"] for i in range(STREAMS)])
        for _ in range(100):
            if open_files() <= before:
                return
            served.threading.Event().wait(0.1)
        self.assertLessEqual(open_files(), before, "connections that were closed are gone")


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
