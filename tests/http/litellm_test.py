#!/usr/bin/env python3
"""LiteLLM against the server: litellm_test.py CHORAL [unittest arguments]. Needs xgrammar for calls of functions."""

import asyncio
import json
import os
import sys
import unittest

import served

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its prices from the package, not from the network
litellm = served.need("litellm")
served.need_xgrammar()
litellm.telemetry = False
litellm.suppress_debug_info = True

FILES = served.Files(context=2048)
SERVER = None
CHAT = [{"role": "user", "content": "Say something."}]
TOOLS = [{"type": "function", "function": {"name": name, "description": "A function.", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Bergen", "Lima"]}, "days": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["city", "days"], "additionalProperties": False}}} for name in ("weather", "forecast")]


def setUpModule():
    global SERVER
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root)


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)


def where():
    return {"api_base": f"http://127.0.0.1:{SERVER.port}/v1", "api_key": "none", "timeout": served.LONG, "num_retries": 0}


def chat(**fields):
    return litellm.completion(**{"model": "openai/one", "messages": CHAT, "max_tokens": 12, "temperature": 0, **where(), **fields})


def joined(chunks):
    return litellm.stream_chunk_builder(chunks, messages=CHAT)


class LiteLLMTest(unittest.TestCase):
    def check_calls(self, message, names=("weather", "forecast")):
        self.assertTrue(message.tool_calls, message)
        self.assertEqual(len({call.id for call in message.tool_calls}), len(message.tool_calls))
        for call in message.tool_calls:
            self.assertEqual(call.type, "function")
            self.assertIn(call.function.name, names)
            arguments = json.loads(call.function.arguments)
            self.assertEqual(set(arguments), {"city", "days"})
            self.assertIn(arguments["city"], ("Bergen", "Lima"))
            self.assertIn(arguments["days"], range(1, 6))

    def test_a_chat(self):
        own = SERVER.post("/v1/chat/completions", model="one", messages=CHAT, max_tokens=12, temperature=0)
        answer = chat()
        self.assertEqual(answer.choices[0].message.content, own["choices"][0]["message"]["content"])
        self.assertEqual((answer.choices[0].finish_reason, answer.object, answer.model), ("length", "chat.completion", "one"))
        self.assertEqual(answer.usage.model_dump()["completion_tokens"], 12)
        self.assertEqual(answer.usage.prompt_tokens, own["usage"]["prompt_tokens"])
        self.assertNotEqual(chat(model="openai/two").choices[0].message.content, answer.choices[0].message.content)

    def test_several_answers_and_log_probabilities(self):
        answer = chat(n=3, temperature=1, seed=1, logprobs=True, top_logprobs=2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        for choice in answer.choices:
            self.assertTrue(0 < len(choice.logprobs.content) <= 12)
            self.assertTrue(all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content))

    def test_a_stream(self):
        whole = chat()
        chunks = list(chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), whole.choices[0].message.content)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason], ["length"])
        self.assertEqual([c.usage.completion_tokens for c in chunks if getattr(c, "usage", None)][-1], 12)
        self.assertEqual(joined(chunks).choices[0].message.content, whole.choices[0].message.content)

    def test_asynchronously(self):
        async def one(model):
            return await litellm.acompletion(model=f"openai/{model}", messages=CHAT, max_tokens=12, temperature=0, **where())

        async def streamed(model):
            stream = await litellm.acompletion(model=f"openai/{model}", messages=CHAT, max_tokens=12, temperature=0, stream=True, **where())
            return "".join([c.choices[0].delta.content or "" async for c in stream])

        async def all_of(models):
            return await asyncio.gather(*map(one, models), *map(streamed, models))

        a, b, *texts = asyncio.run(all_of(["one", "two"]))
        self.assertEqual([a.choices[0].message.content, b.choices[0].message.content], texts)

    def test_completions_of_text(self):
        answer = litellm.text_completion(model="text-completion-openai/one", prompt="Hello", max_tokens=5, temperature=0, **where())
        self.assertEqual(answer.choices[0].text, SERVER.post("/v1/completions", model="one", prompt="Hello", max_tokens=5, temperature=0)
                         ["choices"][0]["text"])

    def test_calls_that_are_required(self):
        for seed in range(3):
            answer = chat(tools=TOOLS, tool_choice="required", temperature=1, seed=seed, max_tokens=1000)
            self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
            self.check_calls(answer.choices[0].message)
            chunks = list(chat(tools=TOOLS, tool_choice="required", temperature=1, seed=seed, max_tokens=1000, stream=True))
            together = joined(chunks).choices[0]
            self.assertEqual(together.finish_reason, "tool_calls")
            self.check_calls(together.message)
            self.assertEqual([(c.function.name, c.function.arguments) for c in together.message.tool_calls],
                             [(c.function.name, c.function.arguments) for c in answer.choices[0].message.tool_calls])

    def test_a_call_that_is_named_and_what_follows_it(self):
        named = {"type": "function", "function": {"name": "forecast"}}
        message = chat(tools=TOOLS, tool_choice=named, max_tokens=1000, temperature=1, seed=2).choices[0].message
        self.check_calls(message, ["forecast"])
        told = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in message.tool_calls]
        answer = chat(messages=[*CHAT, message.model_dump(), *told], tools=TOOLS, tool_choice="none")
        self.assertIsNone(answer.choices[0].message.tool_calls)
        self.assertEqual(answer.usage.completion_tokens, 12)

    def test_a_schema(self):
        schema = {"type": "json_schema", "json_schema": {"name": "trip", "strict": True, "schema": TOOLS[0]["function"]["parameters"]}}
        answer = json.loads(chat(response_format=schema, max_tokens=1000, temperature=1, seed=5).choices[0].message.content)
        self.assertEqual(set(answer), {"city", "days"})

    def test_embeddings(self):
        for form in ("float", "base64"):
            answer = litellm.embedding(model="openai/one", input=["Hello", "What is it?"], encoding_format=form, **where())
            self.assertEqual([entry["index"] for entry in answer.data], [0, 1])
            self.assertEqual(answer.usage.completion_tokens, 0)
            if form == "float":
                own = SERVER.post("/v1/embeddings", model="one", input="Hello")["data"][0]["embedding"]
                self.assertEqual(answer.data[0]["embedding"], own)

    def test_errors_are_the_clients_own(self):
        for error, fields in [(litellm.NotFoundError, {"model": "openai/onee"}), (litellm.BadRequestError, {"temperature": -1}),
                              (litellm.BadRequestError, {"max_tokens": -2}), (litellm.BadRequestError, {"top_logprobs": 3})]:
            with self.assertRaises(error, msg=fields):
                chat(**fields)
        with self.assertRaises(litellm.ContextWindowExceededError):
            chat(messages=[{"role": "user", "content": "x" * 4000}])


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
