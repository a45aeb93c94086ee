#!/usr/bin/env python3
"""Anthropic's own client against the server: anthropic_test.py CHORAL [unittest arguments]. Every answer and every event must be what the
client's types say, to the last field, and hold no other. The models say what the test wrote (scripted_model.py)."""

import json
import pathlib
import sys
import tempfile
import unittest

import served
import scripted_model

anthropic = served.need("anthropic")
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent  # noqa: E402
from anthropic.types.shared import ErrorResponse  # noqa: E402
from strict_types import forbids_others, strictly  # noqa: E402

TEMP = tempfile.TemporaryDirectory()
KEY = "sk-a-key-of-some-length"
# What the last message's last letter asks for (answers_test.py); "!" stands behind what a client of code sends.
TEMPLATE = ("{% if tools %}<tool_call> {{ tools | tojson }}{% endif %}"
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
            "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments | tojson }}</tool_call>{% endfor %}"
            "{% if not (loop.last and m.role == 'assistant') %}<|im_end|>\n{% endif %}{% endfor %}"
            "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}"
            "{% if messages[-1].role != 'assistant' %}{{ messages[-1].content[-1] }}{% endif %}")
SCRIPTS = {
    "1": ["<think>", "\n1a", "1b\n", "</think>", "\n\nYes", ", it is."],
    "2": ["<think>2", "2a"],
    "3": ["No", " thoughts", " here"],
    "4": ["<think>\n4", "</think>\n", "<tool_call>", "\n{\"name\": \"look\", ", "\"arguments\": {\"city\"", ": \"Rome\"}}", "\n</tool_call>"],
}
LOOK = {"name": "look", "description": "Looks at a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}
SERVER = None


def setUpModule():
    global SERVER
    model = scripted_model.write_scripted_model(pathlib.Path(TEMP.name) / "scripted", SCRIPTS, TEMPLATE, context=32768)
    SERVER = served.Server(model, "--api-key", KEY)


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)
    TEMP.cleanup()


def client(kind=anthropic.Anthropic, **options):
    return kind(base_url=f"http://127.0.0.1:{SERVER.port}", max_retries=0, timeout=served.LONG, **{"api_key": KEY, **options})


def asked(letter, **fields):
    return {"model": "base", "messages": [{"role": "user", "content": f"say {letter}"}], "temperature": 0, "max_tokens": 40, **fields}


def said(letter, **fields):
    """The same for the client, which knows no temperature."""
    body = asked(letter, **fields)
    del body["temperature"]
    return {**body, "extra_body": {"temperature": 0}}


def raw(path, body, **headers):
    status, head, answer = SERVER.call("POST", path, body, {"x-api-key": KEY, "anthropic-version": "2023-06-01", **headers})
    return status, head, answer


def events_of(body):
    """The events of a stream, as (name, data)."""
    status, head, text = raw("/v1/messages", {**body, "stream": True})
    assert status == 200, text
    assert head["request-id"] and head["Content-Type"].startswith("text/event-stream"), head
    pairs = []
    for block in text.strip("\n").split("\n\n"):
        name, data = block.split("\n")
        pairs.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return pairs


MESSAGE, EVENT, COUNT, ERROR = (forbids_others(kind) for kind in (Message, RawMessageStreamEvent, MessageTokensCount, ErrorResponse))


class ShapesTest(unittest.TestCase):
    """By hand, to the last byte of what is documented."""

    def test_whole_answers_have_no_other_fields(self):
        for letter, fields in (("1", {}), ("2", {"max_tokens": 1}), ("3", {}), ("4", {"tools": [LOOK]})):
            status, head, answer = raw("/v1/messages", asked(letter, **fields))
            self.assertEqual(status, 200, answer)
            self.assertTrue(head["request-id"])
            strictly(MESSAGE, answer)

    def test_streams_have_the_documented_events_and_no_others(self):
        for letter, fields in (("1", {}), ("2", {"max_tokens": 1}), ("3", {"stop_sequences": [" here"]}), ("4", {"tools": [LOOK]})):
            body = asked(letter, **fields)
            pairs = events_of(body)
            for name, data in pairs:
                self.assertEqual(name, data["type"])
                if name != "ping":
                    strictly(EVENT, data)
            names = [name for name, _ in pairs]
            self.assertEqual(names[:2], ["message_start", "ping"])
            self.assertEqual(names[-2:], ["message_delta", "message_stop"])
            # Blocks come one after another, each begun, told and ended under its own number.
            open_block, blocks = None, 0
            for name, data in pairs[2:-2]:
                if name == "content_block_start":
                    self.assertIsNone(open_block)
                    open_block = data["index"]
                    self.assertEqual(open_block, blocks)
                elif name == "content_block_stop":
                    self.assertEqual(data["index"], open_block)
                    open_block, blocks = None, blocks + 1
                else:
                    self.assertEqual((name, data["index"]), ("content_block_delta", open_block))
            self.assertIsNone(open_block)
            start, end = pairs[0][1]["message"], pairs[-2][1]
            whole = raw("/v1/messages", body)[2]
            self.assertEqual((start["content"], start["stop_reason"], start["usage"]["output_tokens"]), ([], None, 0))
            self.assertEqual(end["delta"], {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]})
            self.assertEqual(end["usage"]["output_tokens"], whole["usage"]["output_tokens"])

    def test_errors_are_anthropics(self):
        body = asked("3")
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
        for want, kind, bad, headers in (
                (400, "invalid_request_error", {**body, "max_tokens": 0}, {}),
                (400, "invalid_request_error", {"messages": body["messages"]}, {}),
                (400, "invalid_request_error", {**body, "messages": [{"role": "user", "content": [image]}]}, {}),
                (400, "invalid_request_error", "{", {}),
                (401, "authentication_error", body, {"x-api-key": "wrong"}),
                (404, "not_found_error", {**body, "model": "claude-none"}, {}),
                (415, "invalid_request_error", json.dumps(body), {"Content-Type": "text/plain"})):
            status, head, answer = raw("/v1/messages", bad, **headers)
            self.assertEqual((status, answer["error"]["type"]), (want, kind), answer)
            self.assertEqual(strictly(ERROR, answer).request_id, head["request-id"])
        status, _, answer = SERVER.call("GET", "/v1/messages", headers={"x-api-key": KEY})
        self.assertEqual(status, 405)
        strictly(ERROR, answer)

    def test_a_stream_that_fails_ends_with_an_error(self):
        name, data = events_of(asked("x", ignore_eos=True, max_tokens=30000, timeout_s=0.3))[-1]
        self.assertEqual((name, strictly(ERROR, data).error.type), ("error", "timeout_error"))


class ClientTest(unittest.TestCase):
    def test_thoughts_and_text(self):
        got = client().messages.create(**said("1"))
        self.assertEqual([block.type for block in got.content], ["thinking", "text"])
        self.assertEqual((got.content[0].thinking, got.content[1].text), ("1a1b", "Yes, it is."))
        self.assertTrue(got.content[0].signature)
        self.assertEqual((got.stop_reason, got.stop_sequence), ("end_turn", None))
        self.assertEqual(got.usage.output_tokens_details.thinking_tokens, 4)
        self.assertTrue(got._request_id and got.id.startswith("msg_"))
        with client().messages.stream(**said("1")) as stream:
            self.assertEqual("".join(stream.text_stream), "Yes, it is.")
            final = stream.get_final_message()
        self.assertEqual([b.to_dict() for b in final.content], [b.to_dict() for b in got.content])

    def test_thoughts_can_be_left_out(self):
        for display, thinking in (("omitted", ""), ("summarized", "1a1b")):
            body = said("1", thinking={"type": "adaptive", "display": display})
            got = client().messages.create(**body)
            with client().messages.stream(**body) as stream:
                final = stream.get_final_message()
            for message in (got, final):
                self.assertEqual((message.content[0].thinking, message.content[1].text), (thinking, "Yes, it is."))
                self.assertTrue(message.content[0].signature)

    def test_why_it_ended(self):
        self.assertEqual(client().messages.create(**said("3", max_tokens=2)).stop_reason, "max_tokens")
        got = client().messages.create(**said("3", stop_sequences=["absent", " here"]))
        self.assertEqual((got.stop_reason, got.stop_sequence, got.content[0].text), ("stop_sequence", " here", "No thoughts"))

    def test_calls_and_their_results(self):
        got = client().messages.create(**said("4", tools=[LOOK]))
        self.assertEqual((got.stop_reason, [b.type for b in got.content]), ("tool_use", ["thinking", "tool_use"]))
        call = got.content[1]
        self.assertEqual((call.name, call.input), ("look", {"city": "Rome"}))
        with client().messages.stream(**said("4", tools=[LOOK])) as stream:
            pieces = [e.partial_json for e in stream if e.type == "input_json"]
            final = stream.get_final_message()
        self.assertEqual((json.loads("".join(pieces)), final.content[1].input, final.stop_reason),
                         ({"city": "Rome"}, {"city": "Rome"}, "tool_use"))
        # The answer goes back as it came, with what came of the call.
        turns = [*asked("4")["messages"], {"role": "assistant", "content": got.content}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "It rains. 3"}]}]}]
        again = client().messages.create(**said("4", tools=[LOOK], messages=turns))
        self.assertEqual((again.content[0].text, again.stop_reason), ("No thoughts here", "end_turn"))

    def test_the_answer_goes_on_with_an_assistants_words(self):
        turns = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "I say 3"}]
        self.assertEqual(client().messages.create(**said("", messages=turns)).content[0].text, "No thoughts here")

    def test_thinking_is_switched_by_the_request(self):
        counted = {kind: client().messages.count_tokens(model="base", messages=asked("3")["messages"], thinking=thinking).input_tokens
                   for kind, thinking in (("off", {"type": "disabled"}), ("on", {"type": "enabled", "budget_tokens": 1024}),
                                          ("free", {"type": "adaptive"}))}
        self.assertEqual(counted["on"], counted["free"])
        self.assertGreater(counted["off"], counted["on"])

    def test_a_key_stands_in_either_header(self):
        for good in (client(), client(api_key=None, auth_token=KEY)):
            self.assertEqual(good.messages.create(**said("3")).content[0].text, "No thoughts here")
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            client(api_key="wrong").messages.create(**said("3"))
        self.assertEqual(caught.exception.type, "authentication_error")
        self.assertTrue(caught.exception.request_id)
        with self.assertRaises(anthropic.NotFoundError) as caught:
            client().messages.create(**said("3", model="claude-none"))
        self.assertIn("does not exist here", caught.exception.api_message)
        with self.assertRaises(anthropic.BadRequestError):
            client().messages.create(**said("3", tools=[{"type": "web_search_20250305", "name": "web_search"}]))

    def test_tokens_are_counted_as_they_are_read(self):
        for body in (said("3"), said("3", system="Be brief.", tools=[LOOK])):
            count = client().messages.count_tokens(**{k: v for k, v in body.items() if k in ("model", "messages", "system", "tools")})
            usage = client().messages.create(**body).usage
            self.assertEqual(count.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)
        status, _, answer = raw("/v1/messages/count_tokens", {k: v for k, v in asked("3").items() if k != "max_tokens"})
        self.assertEqual(status, 200)
        strictly(COUNT, answer)


class CodingClientTest(unittest.TestCase):
    """What a client that writes code sends: many tools, a long system prompt in blocks, betas, results in lists."""

    def body(self, number, messages):
        tools = [{"name": f"mcp__server_{i}__a_tool_with_a_rather_long_name_{i:03}", "description": "Does things. " * 20,
                  "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                                   "properties": {"file_path": {"type": "string", "description": "The path"},
                                                  "limit": {"type": "number", "exclusiveMinimum": 0},
                                                  "edits": {"type": "array", "items": {"type": "object", "properties": {
                                                      "old": {"type": "string"}}, "required": ["old"]}}},
                                   "required": ["file_path"], "additionalProperties": False}} for i in range(24)]
        tools[-1]["cache_control"] = {"type": "ephemeral"}
        ephemeral = {"type": "ephemeral", "ttl": "1h"}
        return {"model": "base", "max_tokens": 32000, "tools": [LOOK, *tools], "betas": ["claude-code-20250219"],
                "system": [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={number};"},
                           {"type": "text", "text": "You are a client.", "cache_control": ephemeral},
                           {"type": "text", "text": "Follow these rules closely. " * 60, "cache_control": ephemeral}],
                "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "s"})}, "messages": messages}

    def test_a_session(self):
        reminder = {"type": "text", "text": "<system-reminder>Be kind.</system-reminder>"}
        turns = [{"role": "user", "content": [reminder, {"type": "text", "text": "Look it up. 4", "cache_control": {"type": "ephemeral"}}]}]
        with client().beta.messages.stream(**self.body(1, turns), extra_body={"temperature": 0}) as stream:
            first = stream.get_final_message()
        self.assertEqual((first.stop_reason, first.content[-1].input), ("tool_use", {"city": "Rome"}))
        turns += [{"role": "assistant", "content": [block.to_dict() for block in first.content]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first.content[-1].id, "is_error": True,
                                                "content": [{"type": "text", "text": "<tool_use_error>No.</tool_use_error>"}]},
                                               reminder, {"type": "text", "text": "Then say 3", "cache_control": {"type": "ephemeral"}}]}]
        second = client().beta.messages.create(**self.body(2, turns), extra_body={"temperature": 0})
        self.assertEqual((second.content[0].text, second.stop_reason), ("No thoughts here", "end_turn"))
        # The long beginning was read once, though the client numbers its requests within it.
        self.assertGreater(second.usage.cache_read_input_tokens, 10 * second.usage.input_tokens)
        before = first.usage.input_tokens + first.usage.cache_read_input_tokens
        self.assertLess(before - second.usage.cache_read_input_tokens, 200)
        status, head, answer = raw("/v1/messages?beta=true", {**{k: v for k, v in self.body(3, turns).items() if k != "betas"}, "temperature": 0},
                                   **{"anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14"})
        self.assertEqual(status, 200, answer)
        self.assertIsNone(head["X-Choral-Warnings"])
        strictly(MESSAGE, answer)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
