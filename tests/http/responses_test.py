#!/usr/bin/env python3
"""Responses that are stored, gone on from, computed in the background, cancelled and deleted; and every event of a stream: responses_test.py
CHORAL [unittest arguments]. Answers and events must be what the types of OpenAI's client say, to the last field, and hold no other, but for
`store`, which OpenAI's answers have and its types have not, the `name` of a call that ends, which other versions of its types have, and our
own `adapters`. The models say what the test wrote (scripted_model.py)."""

import contextlib
import http.client
import itertools
import json
import os
import pathlib
import sqlite3
import sys
import tempfile
import time
import unittest

import served
import scripted_model

openai = served.need("openai")
from openai.types.responses import Response, ResponseFunctionCallArgumentsDoneEvent, ResponseStreamEvent  # noqa: E402
from openai.types.responses.response_item_list import ResponseItemList  # noqa: E402
from strict_types import forbids_others, strictly  # noqa: E402

TEMP = tempfile.TemporaryDirectory()
MINE, YOURS = "sk-a-key-of-some-length", "sk-another-key-as-long"
TEMPLATE = ("{% if tools %}<tool_call> {{ tools | tojson }}{% endif %}"
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
            "{{ m.content }}<|im_end|>\n{% endfor %}{{ messages[-1].content[-1] }}")
SCRIPTS = {
    "1": ["<think>", "\n1a", "1b\n", "</think>", "\n\nYes", ", it is."],
    "3": ["No", " thoughts", " here"],
    "4": ["<think>\n4", "</think>\n", "<tool_call>", "\n{\"name\": \"look\", ", "\"arguments\": {\"city\"", ": \"Rome\"}}", "\n</tool_call>"],
}
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
PATH = "/v1/responses"
SERVER = None


def start():
    return served.Server(MODEL, "--api-key", MINE, "--api-key", YOURS, "--state-dir", pathlib.Path(TEMP.name) / "state",
                         "--store-responses", "10M")


def setUpModule():
    global MODEL, SERVER, RESPONSE, EVENT, ITEMS
    MODEL = scripted_model.write_scripted_model(pathlib.Path(TEMP.name) / "scripted", SCRIPTS, TEMPLATE, context=16384)
    RESPONSE, EVENT, ITEMS = (forbids_others(kind, but=(Response, ResponseFunctionCallArgumentsDoneEvent)) for kind in (Response, ResponseStreamEvent, ResponseItemList))
    SERVER = start()


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)
    TEMP.cleanup()


def call(method, path, body=None, key=MINE, want=200):
    status, _, answer = SERVER.call(method, path, body, {"Authorization": f"Bearer {key}"})
    assert status == want, (status, answer)
    return answer


def check(response):
    """Strictly a response, with no field of others'."""
    read = strictly(RESPONSE, response)
    assert set(response) - set(Response.model_fields) <= {"adapters", "store"}, response
    return read


def ask(letter, **fields):
    return check(call("POST", PATH, {"input": f"say {letter}", "temperature": 0, **fields}))


def events(letter, **fields):
    return read_events(call("POST", PATH, {"input": f"say {letter}", "temperature": 0, "stream": True, **fields}))


def read_events(text):
    told = []
    for block in text.strip("\n").split("\n\n"):
        name, data = block.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}", block
    return told


def ended(response_id):
    for _ in range(200):
        answer = call("GET", f"{PATH}/{response_id}")
        if answer["status"] not in ("queued", "in_progress"):
            return check(answer)
        time.sleep(0.05)
    raise AssertionError(answer)


class StreamTest(unittest.TestCase):
    def test_every_event_is_one_of_openais(self):
        for letter, fields in (("1", {}), ("1", {"max_output_tokens": 2}), ("3", {}), ("4", {"tools": [LOOK]}),
                               ("3", {"include": ["message.output_text.logprobs"], "top_logprobs": 2}),
                               ("3", {"metadata": {"a": "b"}, "text": {"verbosity": "low"}, "truncation": "disabled", "max_tool_calls": 3,
                                      "service_tier": "auto", "reasoning": {"effort": "low"}, "store": False})):
            told = events(letter, **fields)
            self.assertEqual([event["sequence_number"] for event in told], list(range(len(told))))
            for event in told:
                if event["type"] == "response.function_call_arguments.done":
                    self.assertEqual(event["name"], "look")
                strictly(EVENT, event)
                if "response" in event:
                    check(event["response"])
            self.assertEqual([event["type"] for event in told[:2]], ["response.created", "response.in_progress"])
            whole = ask(letter, **fields)
            last = told[-1]["response"]
            self.assertEqual(told[-1]["type"], f"response.{whole.status}")
            self.assertEqual(last["status"], whole.status)
            # Items are added and ended in order, and what ended is what the response holds.
            done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
            self.assertEqual(done, last["output"])
            self.assertEqual([item["type"] for item in done], [item.type for item in whole.output])

    def test_one_that_fails_says_so_twice(self):
        told = events("x", ignore_eos=True, timeout_s=0.3)
        for event in told[-2:]:
            strictly(EVENT, event)
        self.assertEqual([event["type"] for event in told[-2:]], ["error", "response.failed"])
        failed = check(told[-1]["response"])
        self.assertEqual((failed.status, failed.error.message), ("failed", told[-2]["message"]))
        self.assertEqual(check(call("GET", f"{PATH}/{failed.id}")).status, "failed")

    def test_tools_are_chosen_in_the_flat_form(self):
        if "CHORAL_XGRAMMAR" not in os.environ:
            self.skipTest("CHORAL_XGRAMMAR names no folder with xgrammar")
        server = served.Server(served.tiny_model.write_model(pathlib.Path(TEMP.name) / "tiny", context=2048))
        try:
            for choice in ("required", {"type": "function", "name": "look"},
                           {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]}):
                got = check(server.post(PATH, input="Look.", tools=[LOOK], tool_choice=choice, max_output_tokens=200, temperature=0))
                self.assertEqual([item.name for item in got.output if item.type == "function_call"][:1], ["look"], got)
                self.assertEqual(got.tool_choice if isinstance(choice, str) else got.tool_choice.model_dump(exclude_unset=True), choice)
            status, _, answer = server.call("POST", PATH, {"input": "a", "tools": [LOOK], "tool_choice": {"type": "function", "name": "x"}})
            self.assertEqual(status, 400, answer)
        finally:
            self.assertEqual(server.stop(), 0)


class StoreTest(unittest.TestCase):
    def test_a_response_is_kept_and_deleted(self):
        for made in (ask("1", metadata={"a": "b"}), check(events("1", metadata={"a": "b"})[-1]["response"])):
            self.assertTrue(made.store)
            self.assertEqual(check(call("GET", f"{PATH}/{made.id}")), made)
            call("GET", f"{PATH}/{made.id}", key=YOURS, want=404)
            call("DELETE", f"{PATH}/{made.id}", key=YOURS, want=404)
            self.assertTrue(call("DELETE", f"{PATH}/{made.id}")["deleted"])
            call("GET", f"{PATH}/{made.id}", want=404)
        call("GET", f"{PATH}/{ask('3', store=False).id}", want=404)

    def test_its_input_comes_in_pages(self):
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                 {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                 {"type": "function_call_output", "call_id": "c", "output": "d"}, {"role": "user", "content": "say 3"}]
        made = ask("", input=turns)
        path = f"{PATH}/{made.id}/input_items"
        page = call("GET", f"{path}?order=asc&limit=3")
        self.assertEqual(([item.type for item in strictly(ITEMS, page).data], page["has_more"]),
                         (["message", "message", "function_call"], True))
        rest = call("GET", f"{path}?order=asc&after={page['last_id']}")
        self.assertEqual(([item.type for item in strictly(ITEMS, rest).data], rest["has_more"]), (["function_call_output", "message"], False))
        self.assertEqual(call("GET", path)["data"], [*page["data"], *rest["data"]][::-1])
        call("GET", f"{path}?limit=0", want=400)
        call("GET", f"{path}?after=none", want=400)
        call("GET", f"{PATH}/{made.id}/other", want=404)

    def test_one_goes_on_from_another(self):
        first = ask("1")
        second = ask("3", previous_response_id=first.id)
        self.assertEqual(second.previous_response_id, first.id)
        # As if the whole conversation were sent.
        whole = ask("", input=[{"role": "user", "content": "say 1"}, *(item.to_dict() for item in first.output),
                               {"role": "user", "content": "say 3"}])
        self.assertEqual(second.usage.input_tokens, whole.usage.input_tokens)
        third = ask("3", previous_response_id=second.id)
        self.assertGreater(third.usage.input_tokens, second.usage.input_tokens)
        call("POST", PATH, {"input": "a", "previous_response_id": first.id}, key=YOURS, want=404)
        call("DELETE", f"{PATH}/{first.id}")
        self.assertIn(first.id, call("POST", PATH, {"input": "a", "previous_response_id": third.id}, want=404)["error"]["message"])

    def test_openais_client(self):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{SERVER.port}/v1", api_key=MINE, max_retries=0, timeout=served.LONG,
                               _strict_response_validation=True)
        made = client.responses.create(model="base", input="say 3", temperature=0)
        self.assertEqual(client.responses.retrieve(made.id).output_text, "No thoughts here")
        self.assertEqual([item.type for item in client.responses.input_items.list(made.id)], ["message"])
        queued = client.responses.create(model="base", input="say 3", temperature=0, background=True)
        self.assertIn(queued.status, ("queued", "in_progress"))
        ended(queued.id)
        self.assertEqual(client.responses.cancel(queued.id).status, "completed")
        client.responses.delete(made.id)
        with self.assertRaises(openai.NotFoundError):
            client.responses.retrieve(made.id)


class BackgroundTest(unittest.TestCase):
    def test_it_ends_by_itself(self):
        queued = ask("1", background=True)
        self.assertEqual((queued.status, queued.background, queued.output), ("queued", True, []))
        got = ended(queued.id)
        self.assertEqual((got.status, got.output_text, got.id), ("completed", "Yes, it is.", queued.id))
        self.assertEqual(got.usage.output_tokens_details.reasoning_tokens, 4)

    def test_it_is_cancelled(self):
        # A byte's script has no end, so the answer takes as long as it may.
        queued = ask("x", background=True, ignore_eos=True)
        cancelled = check(call("POST", f"{PATH}/{queued.id}/cancel"))
        self.assertEqual(cancelled.status, "cancelled")
        self.assertEqual(check(call("POST", f"{PATH}/{queued.id}/cancel")).status, "cancelled")
        time.sleep(0.3)
        self.assertEqual(ended(queued.id).status, "cancelled")
        call("POST", f"{PATH}/{ask('3').id}/cancel", want=400)
        call("POST", f"{PATH}/resp_none/cancel", want=404)

    def test_it_fails_with_a_reason(self):
        queued = ask("x", background=True, ignore_eos=True, timeout_s=0.05)
        got = ended(queued.id)
        self.assertEqual(got.status, "failed")
        self.assertTrue(got.error.message)

    def test_the_refused_are_named(self):
        for field, fields in (("background", {"background": True, "store": False}), ("truncation", {"truncation": "auto"}), ("include", {"include": ["made_up"]}),
                              ("conversation", {"conversation": "c"}), ("prompt", {"prompt": {"id": "p"}})):
            error = call("POST", PATH, {"input": "a", **fields}, want=400)["error"]
            self.assertEqual(error["param"], field, error)
            self.assertIn(f"'{field}'", error["message"])


class BackgroundStreamTest(unittest.TestCase):
    def follow(self, response_id, query="", **wanted):
        return call("GET", f"{PATH}/{response_id}?stream=true{query}", **wanted)

    def test_its_events_come_again_from_any_number(self):
        for letter, fields in (("1", {}), ("4", {"tools": [LOOK]}), ("x", {"ignore_eos": True, "max_output_tokens": 40})):
            told = events(letter, background=True, **fields)
            self.assertEqual([event["sequence_number"] for event in told], list(range(len(told))))
            self.assertEqual([event["type"] for event in told[:3]], ["response.created", "response.queued", "response.in_progress"])
            for event in told:
                strictly(EVENT, event)
                if "response" in event:
                    self.assertTrue(check(event["response"]).background)
            self.assertEqual([event["response"]["status"] for event in told[:3]], ["queued", "queued", "in_progress"])
            made = told[-1]["response"]
            self.assertEqual(told[-1]["type"], f"response.{made['status']}")
            self.assertEqual(call("GET", f"{PATH}/{made['id']}"), made)
            self.assertEqual(read_events(self.follow(made["id"])), told)
            for after in (0, 3, len(told) - 2):
                self.assertEqual(read_events(self.follow(made["id"], f"&starting_after={after}")), told[after + 1:])
            self.assertEqual(self.follow(made["id"], f"&starting_after={len(told)}"), "")
            # As a stream that is not in the background tells it, which may come in other pieces.
            kinds, plain = ([kind for kind, _ in itertools.groupby(event["type"] for event in each)] for each in (told, events(letter, **fields)))
            self.assertEqual([kind for kind in kinds if kind != "response.queued"], plain)

    def test_it_goes_on_when_the_client_has_gone(self):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{SERVER.port}/v1", api_key=MINE, max_retries=0, timeout=served.LONG,
                               _strict_response_validation=True)
        seen = []
        with client.responses.create(model="base", input="say x", background=True, stream=True, max_output_tokens=150,
                                     extra_body={"ignore_eos": True}) as stream:
            for event in stream:
                seen.append(event)
                if len(seen) == 8:
                    break
        made = seen[0].response.id
        # Two that come back while it goes on, and one when it has ended.
        for _ in range(2):
            with client.responses.retrieve(made, stream=True, starting_after=seen[-1].sequence_number) as stream:
                rest = list(stream)
        self.assertEqual([event.sequence_number for event in [*seen, *rest]], list(range(8 + len(rest))))
        self.assertEqual(rest[-1].type, "response.incomplete")
        text = "".join(event.delta for event in [*seen, *rest] if event.type == "response.output_text.delta")
        self.assertEqual(text, ended(made).output_text)
        self.assertEqual([event["sequence_number"] for event in read_events(self.follow(made))], list(range(8 + len(rest))))

    def test_cancelled_deleted_or_failed_it_ends(self):
        for method, suffix in (("POST", "/cancel"), ("DELETE", "")):
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", SERVER.port, timeout=served.LONG)) as connection:
                body = {"input": "say x", "background": True, "stream": True, "ignore_eos": True}
                connection.request("POST", PATH, json.dumps(body), {"Authorization": f"Bearer {MINE}", "Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.readline()
                made = json.loads(answer.readline().decode().removeprefix("data: "))["response"]["id"]
                call(method, f"{PATH}/{made}{suffix}")
                answer.read()  # to its end
            call("GET", f"{PATH}/{made}?stream=true", want=404 if method == "DELETE" else 200)
        told = events("x", background=True, ignore_eos=True, timeout_s=0.3)
        self.assertEqual([event["sequence_number"] for event in told], list(range(len(told))))
        strictly(EVENT, told[-1])
        self.assertEqual(told[-1]["type"], "response.failed")
        self.assertEqual(check(told[-1]["response"]), ended(told[0]["response"]["id"]))

    def test_what_cannot_be_followed_is_told(self):
        made = events("3", background=True)[0]["response"]["id"]
        self.follow(made, key=YOURS, want=404)
        for query, field in (("&starting_after=-1", "starting_after"), ("&starting_after=x", "starting_after")):
            self.assertIn(field, self.follow(made, query, want=400)["error"]["message"])
        self.assertIn("stream=true", call("GET", f"{PATH}/{made}?starting_after=1", want=400)["error"]["message"])
        call("GET", f"{PATH}/{made}?stream=false")
        call("GET", f"{PATH}/{made}?stream=yes", want=400)
        for without in (ask("3").id, ask("3", background=True).id):
            self.assertEqual(self.follow(without, want=400)["error"]["param"], "stream")


class LifeTest(unittest.TestCase):
    def test_a_killed_server_keeps_what_it_had(self):
        global SERVER
        done = ask("1")
        running = ask("x", background=True, ignore_eos=True)
        SERVER.stop(9)
        SERVER = start()
        self.assertEqual(check(call("GET", f"{PATH}/{done.id}")), done)
        self.assertEqual(ask("3", previous_response_id=done.id).output_text, "No thoughts here")
        lost = check(call("GET", f"{PATH}/{running.id}"))
        self.assertIn(lost.status, ("failed", "completed", "incomplete"))

    def test_without_a_store_what_needs_one_is_refused(self):
        server = served.Server(MODEL)
        try:
            for field, value in (("store", True), ("background", True), ("previous_response_id", "resp_1")):
                status, _, answer = server.call("POST", PATH, {"input": "a", "max_output_tokens": 1, field: value})
                self.assertEqual((status, answer["error"]["param"]), (400, field))
                self.assertIn("--store-responses", answer["error"]["message"])
            self.assertFalse(server.post(PATH, input="say 3", max_output_tokens=16)["store"])
            self.assertEqual(server.call("GET", f"{PATH}/resp_1")[0], 400)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_the_files_are_the_users_alone(self):
        file = pathlib.Path(TEMP.name) / "state" / "responses.sqlite3"
        self.assertEqual(file.stat().st_mode & 0o77, 0)
        with self.assertRaises(sqlite3.OperationalError):
            sqlite3.connect(file, timeout=0).execute("SELECT * FROM responses")


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
