#!/usr/bin/env python3
"""Answers that are cut off at one server and go on at another, through OpenAI's own client: resume_test.py CHORAL [unittest arguments].
What both told together is what one would have told."""

import signal
import sys
import unittest

import served

openai = served.need("openai")

FILES = served.Files(context=2048)
SERVERS = []
CHAT = [{"role": "user", "content": "A city and its weather."}]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Bergen", "Lima"]}, "days": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["city", "days"], "additionalProperties": False}}}]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "old": {"type": "boolean"}},
          "required": ["name", "old"], "additionalProperties": False}
COMPLETIONS = {
    "greedy": {"temperature": 0, "max_tokens": 60},
    "without a seed": {"max_tokens": 100, "logprobs": 2},
    "two of an adapter": {"model": "one", "n": 2, "max_tokens": 10, "frequency_penalty": 1.0},
    "a mix with an echo": {"lora": [{"name": "one"}, {"name": "two", "scale": 0.5}], "max_tokens": 10, "echo": True, "logprobs": 0},
    "a form": {"max_tokens": 60, "response_format": {"type": "json_object"}, "seed": 5},
}
CHATS = {
    "sampled": {"max_tokens": 12, "logprobs": True, "top_logprobs": 1},
    "two of a schema": {"model": "two", "n": 2, "max_tokens": 60, "response_format": {
        "type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA}}},
    "a call": {"model": "one", "max_tokens": 60, "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "look"}}},
}


def start():
    return served.Server(FILES.model, "--adapter-root", FILES.root)


def setUpModule():
    SERVERS.extend([start(), start()])


def tearDownModule():
    for server in SERVERS:
        assert server.stop() == 0, "".join(server.said)


def client(server):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0, timeout=served.LONG)


def ask(server, is_chat, fields, **more):
    call = client(server).chat.completions if is_chat else client(server).completions
    prompt = {"messages": CHAT} if is_chat else {"prompt": "Once upon"}
    body = {**prompt, **fields, **more}
    stream = body.pop("stream", False)
    return call.create(model="base", stream=stream, extra_body=body, **prompt)


def chunks_of(server, is_chat, fields, **more):
    options = {"include_resume": True, "include_usage": True}
    return [chunk.model_dump() for chunk in ask(server, is_chat, {**fields, **more}, stream=True, stream_options=options)]


def told(chunks):
    """What a client adds up of each choice, and the usage."""
    choices, usage = {}, None
    for chunk in chunks:
        if chunk.get("usage"):
            usage = chunk["usage"]["completion_tokens"]
        for choice in chunk["choices"]:
            sum_ = choices.setdefault(choice["index"], {"text": "", "calls": [], "logprobs": [], "end": None})
            delta = choice.get("delta") or {"content": choice.get("text")}
            sum_["text"] += delta.get("content") or ""
            for call in delta.get("tool_calls") or []:
                if call["index"] == len(sum_["calls"]):
                    sum_["calls"].append({"name": call["function"]["name"], "arguments": ""})
                sum_["calls"][call["index"]]["arguments"] += call["function"]["arguments"]
            logprobs = choice.get("logprobs") or {}
            sum_["logprobs"] += logprobs.get("content") or list(zip(*(logprobs.get(key) or [] for key in (
                "tokens", "token_logprobs", "text_offset"))))
            sum_["end"] = choice["finish_reason"] or sum_["end"]
    return choices, usage


def pieces(chunks):
    return [chunk["resume"] for chunk in chunks if chunk.get("resume")]


class ResumeTest(unittest.TestCase):
    maxDiff = None

    def each(self):
        for is_chat, kinds in ((False, COMPLETIONS), (True, CHATS)):
            for name, fields in kinds.items():
                with self.subTest(name, chat=is_chat):
                    yield is_chat, fields

    def test_streams_go_on_elsewhere(self):
        for is_chat, fields in self.each():
            whole = chunks_of(SERVERS[0], is_chat, fields)
            with_pieces = [i for i, chunk in enumerate(whole) if chunk.get("resume")]
            for cut in with_pieces[:4]:
                begun = whole[:cut + 1]
                rest = chunks_of(SERVERS[1], is_chat, fields, resume=pieces(begun))
                self.assertEqual(told(begun + rest), told(whole), f"cut behind chunk {cut}")
            # Cut again, and told as one text.
            first = whole[:with_pieces[0] + 1]
            second = chunks_of(SERVERS[1], is_chat, fields, resume="".join(pieces(first)))[:2]
            third = chunks_of(SERVERS[0], is_chat, fields, resume="".join(pieces(first + second)))
            self.assertEqual(told(first + second + third), told(whole))

    def test_whole_answers_are_the_rest(self):
        for is_chat, fields in self.each():
            whole = ask(SERVERS[0], is_chat, {**fields, "seed": 7}, return_token_ids=True).model_dump()
            ids = [choice["token_ids"] for choice in whole["choices"]]
            for cut in range(1, max(map(len, ids)), 7):
                given = [some[:cut] for some in ids]
                rest = ask(SERVERS[1], is_chat, {**fields, "seed": 7}, return_token_ids=True,
                           continue_token_ids=given if len(given) > 1 else given[0]).model_dump()
                self.assertEqual([a["token_ids"] for a in rest["choices"]], [some[cut:] for some in ids])
                self.assertEqual(rest["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
                for a, b in zip(rest["choices"], whole["choices"]):
                    self.assertEqual(a["finish_reason"], b["finish_reason"])
                    if not is_chat:
                        self.assertTrue(b["text"].endswith(a["text"]))
                        if b["logprobs"]:
                            for key in ("tokens", "token_logprobs", "text_offset"):
                                self.assertEqual(a["logprobs"][key], b["logprobs"][key][len(b["logprobs"][key]) - len(a["token_ids"]):])
                    elif b["message"]["tool_calls"]:
                        self.assertEqual(a["message"]["tool_calls"][0]["function"], b["message"]["tool_calls"][0]["function"])
                    else:
                        self.assertTrue(b["message"]["content"].endswith(a["message"]["content"]))

    def test_a_killed_server_loses_no_answer(self):
        doomed = start()
        fields = {"max_tokens": 1900, "ignore_eos": True, "seed": 3}
        got = []
        stream = ask(doomed, True, fields, stream=True, stream_options={"include_resume": True, "include_usage": True})
        with self.assertRaises(Exception):
            for chunk in stream:
                got.append(chunk.model_dump())
                if len(got) == 3:
                    doomed.process.send_signal(signal.SIGKILL)
        doomed.process.wait(served.LONG)
        doomed.process.stderr.close()
        rest = chunks_of(SERVERS[1], True, fields, resume=pieces(got))
        self.assertEqual(told(got + rest), told(chunks_of(SERVERS[0], True, fields)))

    def test_other_apis_go_on_behind_tokens(self):
        fields = {"temperature": 0, "messages": CHAT, "max_tokens": 10, "model": "one"}
        ids = SERVERS[0].post("/v1/chat/completions", **fields, return_token_ids=True)["choices"][0]["token_ids"]
        responses = {**{key: value for key, value in fields.items() if key not in ("messages", "max_tokens")}, "input": CHAT,
                     "max_output_tokens": 10}
        for path, body, text in (("/v1/messages", fields, lambda a: a["content"][0]["text"]),
                                 ("/v1/responses", responses, lambda a: a["output"][0]["content"][0]["text"])):
            whole = SERVERS[0].post(path, **body)
            rest = SERVERS[1].post(path, **body, continue_token_ids=ids[:4])
            self.assertEqual(rest["usage"]["output_tokens"], whole["usage"]["output_tokens"])
            self.assertTrue(text(whole).endswith(text(rest)), path)
            self.assertEqual(text(whole) == text(rest), path == "/v1/responses", path)

    def refused(self, server, fields, says, code="invalid_argument"):
        with self.assertRaises(openai.BadRequestError) as caught:
            list(ask(server, False, fields, stream=True))
        self.assertIn(says, caught.exception.message)
        self.assertEqual(caught.exception.code, code)

    def test_what_cannot_go_on_is_refused(self):
        fields = {"model": "one", "max_tokens": 1500, "ignore_eos": True}
        begun = pieces(chunks_of(SERVERS[0], False, fields))[:4]
        other = served.Server(FILES.model, "--adapter-root", FILES.root, env={"CHORAL_CPU_LEVEL": "base"})
        try:
            self.refused(other, {**fields, "resume": begun}, "began at a server whose system_fingerprint is fp_")
        finally:
            other.stop()
        server = SERVERS[1]
        self.refused(server, {**fields, "resume": begun, "model": "two"}, "adapter 'two' is another now")
        self.refused(server, {**fields, "resume": begun, "model": "base"}, "began with 1 adapters, and 0 would go on")
        self.refused(server, {**fields, "resume": begun, "prompt": "Once"}, "the prompt is another")
        self.refused(server, {**fields, "resume": begun, "seed": 1}, "'seed' is 1")
        self.refused(server, {**fields, "resume": begun, "max_tokens": 1}, "the whole answer may have 1")
        self.refused(server, {**fields, "resume": begun, "continue_token_ids": [1]}, "give one of them")
        self.refused(server, {**fields, "resume": begun[1:]}, "piece 0 is damaged")
        self.refused(server, {**fields, "resume": begun[:1] + begun[2:]}, "are missing")
        self.refused(server, {**fields, "resume": ["x" * 1000000]}, "piece 0 is cut off or none")
        self.refused(server, {**fields, "resume": []}, "is empty")
        self.refused(server, {**fields, "continue_token_ids": [10 ** 6]}, "the model has ids 0 to ")
        self.refused(server, {**fields, "continue_token_ids": [1] * 9, "max_tokens": 8}, "the whole answer may have 8")
        self.refused(server, {**fields, "continue_token_ids": [[1], [1]]}, "n is 1")
        self.refused(server, {**fields, "continue_token_ids": [1, 2, 3], "stop_token_ids": [2]}, "ended before token 2")
        self.refused(server, {**fields, "continue_token_ids": [1, 2], "response_format": {"type": "json_object"}}, "keep to its form")
        self.refused(server, {**fields, "continue_token_ids": [1], "prompt": ["a", "b"]}, "one prompt")


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
