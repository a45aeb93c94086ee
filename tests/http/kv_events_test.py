#!/usr/bin/env python3
"""The events of the prefix cache as a router takes them, by pyzmq and with vLLM's own names and types (msgspec): kv_events_test.py
CHORAL [unittest arguments]."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

import served

served.need("zmq")
msgspec = served.need("msgspec")
import zmq  # noqa: E402

FILES = served.Files()


# What a subscriber of vLLM declares.
class Event(msgspec.Struct, omit_defaults=True, tag=True):
    pass


class BlockStored(Event):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[list[str] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(Event):
    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


DECODER = msgspec.msgpack.Decoder(Batch)


class Told:
    """A server that publishes its events, and sockets that hear them."""

    def __init__(self, *flags, topic="kv@pod@tiny", **config):
        config = {"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:*", "replay_endpoint": "tcp://127.0.0.1:*",
                  "topic": topic, **config}
        self.server = served.Server(FILES.model, "--adapter-root", FILES.root, "--kv-events-config", json.dumps(config), *flags)
        self.events, self.past = re.search(r"published at (\S+), past ones at (\S+)", "".join(self.server.said)).groups()
        self.context = zmq.Context()

    def subscribe(self, topic=b"kv@pod@"):
        socket = self.context.socket(zmq.SUB)
        socket.connect(self.events)
        socket.subscribe(topic)
        return socket

    def ask_past(self, first):
        """What a subscriber asks for that missed something: batches by their numbers."""
        socket = self.context.socket(zmq.DEALER)
        socket.connect(self.past)
        socket.send_multipart([b"", first.to_bytes(8, "big")])
        batches = {}
        while True:
            assert socket.poll(1000 * served.LONG), "no answer"
            _, number, payload = socket.recv_multipart()
            if number == (2**64 - 1).to_bytes(8, "big"):
                socket.close(0)
                return batches
            batches[int.from_bytes(number, "big")] = DECODER.decode(payload)

    def stop(self):
        self.context.destroy(0)
        return self.server.stop()


class Index:
    """Block hashes by what they stand for, as a picker keeps them."""

    def __init__(self):
        self.stored = {}

    def take(self, batch):
        for event in batch.events:
            if isinstance(event, BlockStored):
                parent, size = event.parent_block_hash, event.block_size
                assert len(event.token_ids) == size * len(event.block_hashes) and len(event.extra_keys) == len(event.block_hashes)
                for i, name in enumerate(event.block_hashes):
                    self.stored[name] = (parent, tuple(event.token_ids[i * size:(i + 1) * size]), event.lora_name)
                    parent = name
            elif isinstance(event, BlockRemoved):
                for name in event.block_hashes:
                    del self.stored[name]
            else:
                self.stored.clear()

    def known(self, ids, lora_name, size):
        parent, blocks = None, 0
        names = {place: name for name, place in self.stored.items()}
        while (blocks + 1) * size < len(ids):
            parent = names.get((parent, tuple(ids[blocks * size:(blocks + 1) * size]), lora_name))
            if parent is None:
                break
            blocks += 1
        return blocks * size


class KvEventsTest(unittest.TestCase):
    def told(self, *flags, **config):
        told = Told(*flags, **config)
        self.addCleanup(lambda: self.assertEqual(told.stop(), 0, "".join(told.server.said)))
        return told

    def test_an_index_of_the_past_says_what_a_prompt_will_find(self):
        told = self.told()
        size = None
        for i in range(12):
            model = ("tiny", "one", "two")[i % 3]
            ids = [(7 * (j // 40 + i % 4) + j) % 200 + 10 for j in range(70 + 13 * i)]
            index = Index()
            for number, batch in sorted(told.ask_past(0).items()):
                index.take(batch)
                size = next((e.block_size for e in batch.events if isinstance(e, BlockStored)), size)
            known = index.known(ids, None if model == "tiny" else model, size) if size else 0
            answer = told.server.post("/v1/completions", model=model, prompt=ids, max_tokens=3, temperature=0)
            details = answer["usage"].get("prompt_tokens_details") or {}
            self.assertEqual(details.get("cached_tokens", 0), known, i)
        self.assertIsNotNone(size)
        self.assertGreater(len(index.stored), 3)

    def test_a_subscriber_hears_the_same_and_numbers_show_what_it_missed(self):
        told = self.told()
        socket = told.subscribe()
        heard = {}
        # A subscriber joins some time after connect(): so ask until something is heard.
        for i in range(served.LONG):
            told.server.post("/v1/completions", prompt=[10 + i] * 70, max_tokens=1)
            if socket.poll(1000):
                break
        told.server.post("/v1/completions", model="one", prompt=list(range(10, 110)), max_tokens=1)
        while socket.poll(2000):
            topic, number, payload = socket.recv_multipart()
            self.assertEqual(topic, b"kv@pod@tiny")
            heard[int.from_bytes(number, "big")] = DECODER.decode(payload)
        socket.close(0)
        past = told.ask_past(0)
        self.assertEqual(sorted(past), list(range(len(past))), "the past has no gap")
        self.assertEqual(past[0].events, [AllBlocksCleared()])
        self.assertEqual(sorted(heard), list(range(min(heard), len(past))))
        for number, batch in heard.items():
            self.assertEqual(batch, past[number])
        self.assertEqual(sorted(told.ask_past(max(past))), [max(past)])
        stored = [event for batch in past.values() for event in batch.events if isinstance(event, BlockStored)]
        self.assertEqual({event.lora_name for event in stored}, {None, "one"})
        self.assertEqual({event.medium for event in stored}, {"GPU"})

    def test_what_is_no_question_has_no_answer_and_harms_nobody(self):
        told = self.told()
        for parts in ([b"\0" * 7], [b"\0" * 9], [b"", b"\0" * 8], [b"x" * 100_000], [b"a"] * 20):
            socket = told.context.socket(zmq.DEALER)
            socket.connect(told.past)
            socket.send_multipart([b"", *parts])
            self.assertFalse(socket.poll(200))
            socket.close(0)
        self.assertIn(0, told.ask_past(0))

    def test_what_cannot_work_is_said_before_the_model_is_read(self):
        blocker = zmq.Context().socket(zmq.PUB)
        port = blocker.bind_to_random_port("tcp://0.0.0.0")
        on = {"enable_kv_cache_events": True}
        for flags, said in (
                (["--kv-events-config", json.dumps({**on, "topics": "x"})], "there is no key 'topics'"),
                (["--kv-events-config", json.dumps(on), "--no-enable-prefix-caching"], "without prefix caching there are no events"),
                (["--kv-events-config", json.dumps({**on, "endpoint": f"tcp://0.0.0.0:{port}"})], "cannot be bound: Address already in use"),
                (["--kv-events-config", json.dumps({**on, "endpoint": "tcp://*:5557:x"})], "cannot be bound")):
            run = subprocess.run([served.CHORAL, "serve", pathlib.Path(FILES.folder) / "no-model", "--port", "0", *flags],
                                 capture_output=True, text=True, timeout=served.LONG)
            self.assertNotEqual(run.returncode, 0, flags)
            self.assertIn(said, run.stderr)
        blocker.context.destroy(0)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
