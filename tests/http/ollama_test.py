#!/usr/bin/env python3
"""Ollama's client against /api: ollama_test.py CHORAL [unittest arguments]. Answers and lines must be what its types say, and hold no other
field. The models say what the test wrote (scripted_model.py)."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import served
import scripted_model

ollama = served.need("ollama")
from ollama import _types  # noqa: E402
from strict_types import forbids_others  # noqa: E402

TEMP = tempfile.TemporaryDirectory()
TEMPLATE = ("{% if tools %}<tool_call> {{ tools | tojson }}{% endif %}"
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
            "{{ m.content }}<|im_end|>\n{% endfor %}{{ messages[-1].content[-1] }}")
SCRIPTS = {
    "1": ["<think>", "\n1a", "1b\n", "</think>", "\n\nYes", ", it is."],
    "4": ["<think>\n4", "</think>\n", "<tool_call>", "\n{\"name\": \"look\", ", "\"arguments\": {\"city\"", ": \"Rome\"}}", "\n</tool_call>"],
}
GREEDY = {"temperature": 0}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
CHAT, TEXT, VECTORS, TAGS, PS, SHOW = (forbids_others(kind) for kind in (_types.ChatResponse, _types.GenerateResponse, _types.EmbedResponse,
                                                                         _types.ListResponse, _types.ProcessResponse, _types.ShowResponse))
# Ollama's lists have a name beside the model, which the client's type of one of them has not.
NAMED = ("name",)


def setUpModule():
    global SERVER, TINY, CLIENT
    scripted = scripted_model.write_scripted_model(pathlib.Path(TEMP.name) / "scripted", SCRIPTS, TEMPLATE, context=4096)
    SERVER = served.Server(scripted, "--served-model-name", "talker")
    files = served.Files(context=512)
    TINY = served.Server(files.model, "--adapter-root", files.root, "--served-model-name", "tiny")
    TINY.files = files
    CLIENT = ollama.Client(host=f"http://127.0.0.1:{SERVER.port}")


def tearDownModule():
    for server in (SERVER, TINY):
        assert server.stop() == 0, "".join(server.said)
    TINY.files.temp.cleanup()
    TEMP.cleanup()


def whole(server, path, kind, **body):
    return kind.validate_python(server.post(path, stream=False, **body))


def lines(server, path, kind, **body):
    status, headers, text = server.call("POST", path, body)
    assert (status, headers["Content-Type"]) == (200, "application/x-ndjson"), (status, text)
    return [kind.validate_json(line) for line in text.splitlines()]


def user(text):
    return [{"role": "user", "content": text}]


class ChatTest(unittest.TestCase):
    def test_a_chat_is_the_same_whole_and_streamed(self):
        for more in ({}, {"think": True}, {"think": "low"}, {"think": False}, {"options": {"num_predict": 5}}, {"tools": [LOOK]}):
            for digit in ("1", "4"):
                body = {"model": "talker", "messages": user(f"say {digit}"), **more}
                body["options"] = {"temperature": 0, **more.get("options", {})}
                got = whole(SERVER, "/api/chat", CHAT, **body)
                parts = lines(SERVER, "/api/chat", CHAT, **body)
                self.assertEqual([part.done for part in parts], [False] * (len(parts) - 1) + [True])
                for field in ("content", "thinking"):
                    self.assertEqual("".join(getattr(part.message, field) or "" for part in parts), getattr(got.message, field) or "", body)
                calls = [call for part in parts for call in part.message.tool_calls or []]
                self.assertEqual(calls, list(got.message.tool_calls or []))
                self.assertEqual(parts[-1].done_reason, got.done_reason)
                self.assertEqual((parts[-1].eval_count, parts[-1].prompt_eval_count), (got.eval_count, got.prompt_eval_count))
                self.assertEqual(got.done_reason, "length" if "options" in more else "stop")
        self.assertGreater(got.total_duration, 0)

    def test_thoughts_and_calls_by_the_client(self):
        got = CLIENT.chat("talker", user("say 1"), think=True, options=GREEDY)
        self.assertEqual((got.message.thinking, got.message.content), ("1a1b", "Yes, it is."))
        self.assertIsNone(CLIENT.chat("talker", user("say 1"), think=False, options=GREEDY).message.thinking)
        got = CLIENT.chat("talker:latest", user("say 4"), tools=[LOOK], options=GREEDY)
        (call,) = got.message.tool_calls
        self.assertEqual((call.function.name, call.function.arguments), ("look", {"city": "Rome"}))
        told = [*user("say 4"), got.message, {"role": "tool", "tool_name": "look", "content": "A city. Now say 1"}]
        self.assertEqual(CLIENT.chat("talker", told, tools=[LOOK], options=GREEDY).message.content, "Yes, it is.")
        self.assertEqual("".join(part.message.content for part in CLIENT.chat("talker", user("say 1"), stream=True, options=GREEDY)), "Yes, it is.")

    def test_generate_is_a_chat_of_one_turn(self):
        got = whole(SERVER, "/api/generate", TEXT, model="talker", prompt="say 1", system="Speak.", options=GREEDY)
        self.assertEqual((got.response, got.thinking, got.done_reason), ("Yes, it is.", "1a1b", "stop"))
        chat = whole(SERVER, "/api/chat", CHAT, model="talker", messages=[{"role": "system", "content": "Speak."}, *user("say 1")], options=GREEDY)
        self.assertEqual(got.prompt_eval_count, chat.prompt_eval_count)
        self.assertEqual("".join(part.response for part in lines(SERVER, "/api/generate", TEXT, model="talker", prompt="say 1", options=GREEDY)), "Yes, it is.")

    def test_a_raw_prompt_is_taken_as_it_is(self):
        got = whole(TINY, "/api/generate", TEXT, model="one", prompt="a b", raw=True, options={"temperature": 0, "num_predict": 8})
        same = TINY.post("/v1/completions", model="one", prompt="a b", temperature=0, max_tokens=8)
        self.assertEqual((got.response, got.done_reason), (same["choices"][0]["text"], "length"))
        self.assertEqual((got.prompt_eval_count, got.eval_count), (same["usage"]["prompt_tokens"], 8))

    def test_options_are_those_of_a_chat(self):
        options = {"temperature": 0.9, "top_k": 20, "top_p": 0.8, "min_p": 0.01, "seed": 5, "num_predict": 12, "repeat_penalty": 1.1,
                   "repeat_last_n": 32, "presence_penalty": 0.1, "frequency_penalty": 0.1, "stop": ["zz"], "num_ctx": 2048, "num_keep": 4}
        got = whole(TINY, "/api/chat", CHAT, model="two", messages=user("a"), options=options)
        same = TINY.post("/v1/chat/completions", model="two", messages=user("a"), max_tokens=12,
                         **{k: v for k, v in options.items() if not k.startswith("num_")})
        self.assertEqual(got.message.content, same["choices"][0]["message"]["content"])

    def test_a_format_holds_the_answer(self):
        schema = {"type": "object", "properties": {"swims": {"type": "boolean"}}, "required": ["swims"]}
        got = whole(TINY, "/api/chat", CHAT, model="tiny", messages=user("a"), format=schema, options={"temperature": 0})
        self.assertEqual(list(json.loads(got.message.content)), ["swims"])
        status, _, answer = TINY.call("POST", "/api/chat", {"model": "tiny", "messages": user("a"), "format": "xml"})
        self.assertEqual((status, "'format'" in answer["error"]), (400, True))

    def test_a_call_without_a_prompt_loads(self):
        self.assertEqual(whole(TINY, "/api/generate", TEXT, model="tiny", keep_alive="5m").done_reason, "load")
        self.assertEqual(whole(TINY, "/api/chat", CHAT, model="tiny", messages=[]).done_reason, "load")


class OthersTest(unittest.TestCase):
    def test_what_there_is(self):
        client = ollama.Client(host=f"http://127.0.0.1:{TINY.port}")
        whole(TINY, "/api/generate", TEXT, model="one", prompt="a", options={"num_predict": 1})
        for path, kind, want in (("/api/tags", TAGS, ["tiny", "one", "two"]), ("/api/ps", PS, ["tiny", "one"])):
            status, _, answer = TINY.call("GET", path)
            self.assertEqual(status, 200, answer)
            self.assertEqual([model["name"] for model in answer["models"] if model["name"] in want], want)
            kind.validate_python({"models": [{k: v for k, v in model.items() if k not in NAMED} for model in answer["models"]]})
        # The client as it is: what it knows is strict in this process, and lacks Ollama's own `name`.
        code = ("import ollama, sys; c = ollama.Client(host=sys.argv[1]); models = c.list().models; "
                "print([m.model for m in models], models[1].details.parent_model, c.ps().models[0].context_length)")
        said = subprocess.run([sys.executable, "-c", code, f"http://127.0.0.1:{TINY.port}"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said.strip(), "['tiny', 'one', 'two'] tiny 512")
        shown = SHOW.validate_python(TINY.post("/api/show", model="two"))
        self.assertIn("completion", client.show("two").capabilities)
        self.assertEqual((shown.details.parent_model, shown.modelinfo[f"{shown.details.family}.context_length"]), ("tiny", 512))
        self.assertRegex(TINY.call("GET", "/api/version")[2]["version"], r"^\d+\.\d+")

    def test_vectors(self):
        got = whole(TINY, "/api/embed", VECTORS, model="one", input=["a b", "c"])
        same = TINY.post("/v1/embeddings", model="one", input=["a b", "c"])
        self.assertEqual([list(vector) for vector in got.embeddings], [one["embedding"] for one in same["data"]])
        self.assertEqual(got.prompt_eval_count, same["usage"]["prompt_tokens"])
        self.assertEqual(len(whole(TINY, "/api/embed", VECTORS, model="one", input="x " * 600).embeddings), 1)
        status, _, answer = TINY.call("POST", "/api/embed", {"model": "one", "input": "x " * 600, "truncate": False})
        self.assertEqual(status, 400, answer)

    def test_what_is_not_served_is_told_by_name(self):
        talk = {"model": "tiny", "messages": user("a")}
        for path, body, says in (("/api/chat", {**talk, "messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "images"),
                                 ("/api/chat", {**talk, "logprobs": True}, "logprobs"), ("/api/chat", {**talk, "options": {"mirostat": 2}}, "mirostat"),
                                 ("/api/generate", {"model": "tiny", "prompt": "a", "suffix": "b"}, "suffix"),
                                 ("/api/generate", {"model": "tiny", "prompt": "a", "context": [1]}, "context"),
                                 ("/api/generate", {"model": "tiny", "prompt": "a", "template": "x"}, "template"),
                                 ("/api/embed", {"model": "tiny", "input": "a", "dimensions": 8}, "dimensions")):
            status, _, answer = TINY.call("POST", path, body)
            self.assertEqual((status, f"'{says}'" in answer["error"] or says in answer["error"]), (400, True), answer)
            self.assertEqual(list(answer), ["error"])
        for path in ("pull", "push", "create", "delete", "copy", "embeddings", "blobs/sha256:0"):
            status, _, answer = TINY.call("POST", f"/api/{path}", {"model": "x"})
            self.assertEqual((status, "is not served: " in answer["error"]), (404, True), answer)
        with self.assertRaises(ollama.ResponseError) as caught:
            CLIENT.chat("nobody", user("a"))
        self.assertEqual((caught.exception.status_code, "does not exist here" in caught.exception.error), (404, True))
        status, headers, _ = TINY.call("POST", "/api/chat", {**talk, "stream": False, "options": {"num_predict": 1, "temprature": 1}})
        self.assertEqual((status, "temperature" in headers["X-Choral-Warnings"]), (200, True))

    def test_a_stream_that_fails_ends_with_an_error(self):
        status, _, text = TINY.call("POST", "/api/chat", {"model": "tiny", "messages": user("a"), "ignore_eos": True, "timeout_s": 0.001})
        last = json.loads(text.splitlines()[-1]) if status == 200 and isinstance(text, str) else text
        self.assertIn("error", last)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main()
