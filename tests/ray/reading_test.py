#!/usr/bin/env python3
"""What choral.ray reads in requests and streams, and keeps of them, without Ray."""

import json
import unittest
from types import SimpleNamespace

from choral.errors import InvalidArgumentError
from choral.ray import asked, autoscaling, changes, child, prefixes, story

LONG = "a system's prompt that is long " * 60


def digests(**fields):
    return asked.asked_of(fields, 100, {"base"}).prefixes


class AskedTest(unittest.TestCase):
    def adapters(self, **fields):
        return asked.asked_of(fields, 10, {"base", "tiny"}).adapters

    def test_adapters(self):
        self.assertEqual(self.adapters(model="base"), ())
        self.assertEqual(self.adapters(model="tiny", lora="sql"), ("sql",))
        self.assertEqual(self.adapters(model="pirate"), ("pirate",))
        self.assertEqual(self.adapters(model="base", lora=["a", {"name": "b", "scale": 2}, {"id": 1}]), ("a", "b"))
        self.assertEqual(self.adapters(lora={"a": 0.5, "b": 1}), ("a", "b"))
        self.assertEqual(self.adapters(model=7, lora=3), ())

    def test_equal_beginnings_have_equal_digests(self):
        one, two = digests(prompt=LONG + "x" * 300), digests(prompt=LONG + "y" * 300)
        shared = len(LONG) // asked.PIECE_CHARACTERS
        self.assertEqual(one[:shared], two[:shared])
        self.assertNotEqual(one[shared:], two[shared:])
        self.assertEqual(len(set(one)), len(one))
        self.assertLessEqual(len(digests(prompt="x" * 10**6)), asked.MOST_PIECES)
        # A digest covers all before it.
        self.assertEqual(set(digests(prompt="x" + LONG)) & set(one), set())

    def test_adapters_salts_and_kinds_divide_them(self):
        plain = set(digests(prompt=LONG))
        for fields in ({"model": "sql"}, {"cache_salt": "mine"}, {"lora": [{"name": "a"}]}):
            self.assertEqual(set(digests(prompt=LONG, **fields)) & plain, set())
        self.assertEqual(digests(prompt=LONG, model="base", temperature=1), digests(prompt=LONG))
        self.assertEqual(set(digests(messages=[{"role": "user", "content": LONG}])) & plain, set())

    def test_a_conversation_that_grew_begins_as_it_did(self):
        turns = [{"role": "system", "content": LONG}, {"role": "user", "content": "why?" * 100}]
        more = [*turns, {"role": "assistant", "content": "so" * 200}, {"role": "user", "content": [{"type": "text", "text": "and?" * 90}]}]
        short, long = digests(messages=turns), digests(messages=more)
        self.assertGreater(len(short), 5)
        self.assertEqual(long[: len(short)], short)
        self.assertNotEqual(digests(messages=turns, tools=[{"type": "function", "function": {"name": "look"}}])[:1], short[:1])

    def test_token_ids(self):
        ids = list(range(200))
        self.assertEqual(len(digests(prompt=ids)), 200 // asked.PIECE_IDS)
        self.assertEqual(digests(prompt=[ids]), digests(prompt=ids))
        self.assertEqual(digests(prompt=ids[:130] + [9] * 70)[:2], digests(prompt=ids)[:2])
        self.assertEqual(digests(prompt=[1, 2, 3]), ())

    def test_what_is_no_request_is_passed_on(self):
        for body in (b"", b"[1]", b"{", b'{"a": NaN', b"\xff\xfe{}", b"{" + b"[" * 100000):
            self.assertIsNone(asked.read_object(body), body[:10])
        for fields in ({"prompt": [["a"], 3]}, {"messages": "x"}, {"messages": [1, None, {"content": None}]}, {"prompt": {"a": 1}},
                       {"prompt": "\ud800" * 300}):
            asked.asked_of(fields, 10, ())

    def test_which_streams_can_move(self):
        chat, plain = "/v1/chat/completions", "/v1/completions"
        self.assertTrue(asked.can_move(chat, {"stream": True, "messages": []}))
        self.assertTrue(asked.can_move(plain, {"stream": True, "prompt": ["a"], "stream_options": {"include_usage": True}}))
        self.assertTrue(asked.can_move(plain, {"stream": True, "prompt": [1, 2], "stream_options": None}))
        for path, fields in ((chat, {}), (chat, {"stream": False}), (plain, {"stream": True, "prompt": ["a", "b"]}), (chat, None),
                             (plain, {"stream": True, "prompt": [[1], [2]]}), ("/v1/messages", {"stream": True}),
                             (chat, {"stream": True, "stream_options": 7})):
            self.assertFalse(asked.can_move(path, fields), fields)


def chunk(text, resume=None, **more):
    fields = {"choices": [{"index": 0, "text": text}], **more, **({"resume": resume} if resume else {}), "z": 1}
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


class StoryTest(unittest.TestCase):
    def story(self, **fields):
        fields = {"prompt": "x", "stream": True, **fields}
        return story.Story(fields, json.dumps(fields).encode())

    def test_pieces_are_asked_for_and_hidden(self):
        told = self.story(seed=1)
        self.assertEqual(told.body, b'{"prompt": "x", "stream": true, "seed": 1,"stream_options":{"include_resume":true}}')
        self.assertEqual(told.take(chunk("a", "one.")), chunk("a"))
        self.assertEqual(told.take(b'data: {"resume":"two.","choices":[]}\n\n'), b'data: {"choices":[]}\n\n')
        told.cut_off()
        self.assertEqual(json.loads(told.body), {"prompt": "x", "stream": True, "seed": 1, "stream_options": {"include_resume": True},
                                                 "resume": ["one.", "two."]})

    def test_a_client_that_asks_for_pieces_gets_them(self):
        told = self.story(stream_options={"include_resume": True})
        self.assertEqual(told.take(chunk("a", "one.")), chunk("a", "one."))
        told = self.story(stream_options={"include_usage": True})
        self.assertEqual(json.loads(told.body)["stream_options"], {"include_usage": True, "include_resume": True})
        self.assertEqual(told.take(chunk("a", "one.")), chunk("a"))
        told.cut_off()
        self.assertEqual(json.loads(told.body)["stream_options"], {"include_usage": True, "include_resume": True})

    def test_a_text_that_looks_like_a_piece_is_a_text(self):
        told = self.story()
        text = ',"resume":"x",'
        self.assertEqual(told.take(chunk(text)), chunk(text))
        told.cut_off()
        self.assertNotIn(b'"resume"', told.body)

    def test_events_are_whole(self):
        whole = chunk("a", "one.") + b": alive\n\n" + chunk("b", "two.") + b"data: [DONE]\n\n"
        for size in (1, 2, 7, 50, 1000):
            told = self.story()
            got = b"".join(told.take(whole[i : i + size]) for i in range(0, len(whole), size))
            self.assertEqual(got, chunk("a") + b": alive\n\n" + chunk("b") + b"data: [DONE]\n\n")
            self.assertTrue(told.ended)

    def test_half_an_event_is_not_told(self):
        told = self.story()
        self.assertEqual(told.take(chunk("a", "one.") + chunk("b", "two.")[:-5]), chunk("a"))
        self.assertFalse(told.ended)
        told.cut_off()
        self.assertEqual(json.loads(told.body)["resume"], ["one."])
        self.assertEqual(told.take(chunk("b", "two.")), chunk("b"))

    def test_what_came_before_the_first_piece_is_told_once(self):
        told = self.story()
        role = chunk("")
        self.assertEqual(told.take(role), role)
        told.cut_off()
        self.assertNotIn("resume", json.loads(told.body))
        self.assertEqual(told.take(role + chunk("a", "one.")), chunk("a"))

    def test_a_client_that_goes_on_itself(self):
        told = self.story(resume="mine.", max_tokens=9)
        told.take(chunk("a", "one."))
        told.cut_off()
        self.assertEqual(json.loads(told.body)["resume"], ["mine.", "one."])
        told = self.story(continue_token_ids=[1, 2])
        told.take(chunk("a", "one."))
        told.cut_off()
        self.assertEqual(json.loads(told.body)["resume"], ["one."])
        self.assertNotIn("continue_token_ids", json.loads(told.body))

    def test_errors(self):
        told = self.story()
        ending = b'data: {"error":{"message":"the server is shutting down","code":"unavailable","status":503}}\n\n'
        self.assertEqual(told.take(chunk("a", "one.") + ending), chunk("a"))
        self.assertIn("shutting down", told.broken)
        self.assertFalse(told.ended)
        told.cut_off()
        self.assertEqual(told.broken, "")
        other = b'data: {"error":{"message":"too long","status":400}}\n\n'
        self.assertEqual(told.take(other), other)
        self.assertTrue(told.ended)


class RestTest(unittest.TestCase):
    def test_prefixes_are_bounded_and_the_first_pieces_stay(self):
        kept = prefixes.Prefixes()
        kept.set_cache(3 * asked.PIECE_IDS)
        kept.add([1, 2])
        kept.add([1, 3, 4])
        self.assertEqual(kept.told(), [1, 3, 4])
        kept.add([9])
        self.assertEqual(kept.told(), [9, 1, 3])
        kept.set_cache(0)
        self.assertEqual(kept.told(), [])

    def test_changes(self):
        load = {"lora_name": "a", "lora_path": "/a"}
        made = {}
        changes.Change(changes.LOAD, load).apply(made)
        self.assertEqual(made, {"a": {**load, "load_inplace": True}})
        changes.Change(changes.PIN, {"lora_name": "a"}).apply(made)
        changes.Change(changes.PIN, {"lora_name": "of-the-root"}).apply(made)
        wanted = {change.name: (change.path, change.fields) for change in changes.Change.between({}, made)}
        self.assertEqual(wanted, {"a": (changes.LOAD, {**load, "load_inplace": True, "pinned": True}),
                                  "of-the-root": (changes.PIN, {"lora_name": "of-the-root"})})
        self.assertEqual(list(changes.Change.between(made, made)), [])
        self.assertEqual({(change.path, change.name) for change in changes.Change.between(made, {})},
                         {(changes.UNLOAD, "a"), (changes.UNPIN, "of-the-root")})
        changes.Change(changes.UNPIN, {"lora_name": "of-the-root"}).apply(made)
        changes.Change(changes.UNLOAD, {"lora_name": "a"}).apply(made)
        self.assertEqual(made, {})

    def test_autoscaling(self):
        def wanted(now, waiting, answers):
            told = {"waiting_tokens": {"a": waiting}, "answers": {"a": answers}}
            context = SimpleNamespace(current_num_replicas=now, target_num_replicas=now, aggregated_metrics=told)
            return autoscaling.WaitingTokens(waiting_tokens=1000, places=64)(context)[0]

        self.assertEqual(wanted(2, 1999, 128), 2)
        self.assertEqual(wanted(2, 4500, 128), 5)
        self.assertEqual(wanted(2, 0, 32), 1)
        self.assertEqual(wanted(2, 0, 33), 2)
        self.assertEqual(wanted(2, 1, 0), 2)
        self.assertEqual(wanted(1, 0, 0), 1)
        context = SimpleNamespace(current_num_replicas=3, target_num_replicas=3, aggregated_metrics=None)
        self.assertEqual(autoscaling.WaitingTokens(1000, 64)(context)[0], 2)

    def test_flags_that_are_not_for_a_fleet(self):
        child.check_arguments(["--max-num-seqs", "8"])
        for flags in (["--state-dir", "/x"], ["--uds=/y"], ["--port", "1"], ["--config=f"]):
            with self.assertRaises(InvalidArgumentError):
                child.check_arguments(flags)


if __name__ == "__main__":
    unittest.main(verbosity=2)
