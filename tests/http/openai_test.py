#!/usr/bin/env python3
"""OpenAI's own client against the server: openai_test.py CHORAL [unittest arguments]. Every answer must be what the client's types
say, to the last field."""

import asyncio
import sys
import unittest

import served

openai = served.need("openai")
from openai.types import Completion  # noqa: E402
from openai.types.chat import ChatCompletion, ChatCompletionChunk  # noqa: E402

FILES = served.Files()
SERVER = None
CHAT = [{"role": "user", "content": "Say something."}]


def setUpModule():
    global SERVER
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root, "--lora", f"one={FILES.root / 'one'}")


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)


def client(kind=openai.OpenAI, strict=True):
    return kind(base_url=f"http://127.0.0.1:{SERVER.port}/v1", api_key="none", max_retries=0, timeout=served.LONG,
                _strict_response_validation=strict)


def strictly(kind, answer):
    """The answer read again with types that take nothing for another."""
    kind.model_validate(answer.model_dump(exclude_unset=True), strict=True)
    return answer


class OpenAIClientTest(unittest.TestCase):
    def test_models(self):
        self.assertEqual([m.id for m in client().models.list()], ["tiny", "one", "two"])
        self.assertEqual(client().models.retrieve("one").id, "one")
        with self.assertRaises(openai.NotFoundError):
            client().models.retrieve("nobody")

    def test_completions(self):
        answer = strictly(Completion, client().completions.create(model="one", prompt="Hello", max_tokens=5, logprobs=2, n=2, seed=1))
        self.assertEqual(len(answer.choices), 2)
        self.assertEqual(len(answer.choices[0].logprobs.tokens), 5)
        # The type knows no finish_reason that is null, which OpenAI's own streams have.
        streamed = list(client(strict=False).completions.create(model="one", prompt="Hello", max_tokens=5, n=2, seed=1, stream=True))
        for choice in answer.choices:
            text = "".join(c.text for chunk in streamed for c in chunk.choices if c.index == choice.index)
            self.assertEqual(text, choice.text)

    def test_chat(self):
        answer = strictly(ChatCompletion, client().chat.completions.create(
            model="one", messages=CHAT, max_completion_tokens=6, logprobs=True, top_logprobs=3, temperature=0))
        self.assertEqual(answer.usage.completion_tokens, 6)
        chunks = [strictly(ChatCompletionChunk, chunk) for chunk in client().chat.completions.create(
            model="one", messages=CHAT, max_completion_tokens=6, temperature=0, stream=True, stream_options={"include_usage": True})]
        text = "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices)
        self.assertEqual(text, answer.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, 6)

    def test_responses(self):
        answer = client().responses.create(model="one", input="Say something.", max_output_tokens=16, temperature=0)
        self.assertEqual(answer.status, "incomplete")
        events = list(client().responses.create(model="one", input="Say something.", max_output_tokens=16, temperature=0, stream=True))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), answer.output_text)
        self.assertEqual(events[-1].response.output_text, answer.output_text)

    def test_embeddings(self):
        # As base64, which the client reads; its strict types are of what it has read.
        answer = client(strict=False).embeddings.create(model="one", input=["Hello", "What is it?"])
        again = client().embeddings.create(model="one", input="Hello", encoding_format="float")
        self.assertEqual([len(d.embedding) for d in answer.data], [64, 64])
        self.assertAlmostEqual(sum(x * x for x in again.data[0].embedding), 1, places=5)
        self.assertEqual([round(x, 6) for x in answer.data[0].embedding], [round(x, 6) for x in again.data[0].embedding])
        with self.assertRaises(openai.BadRequestError):
            client().embeddings.create(model="one", input="Hello", dimensions=8)

    def test_json_objects(self):
        import json
        answer = client().chat.completions.create(model="one", messages=CHAT, max_tokens=200, seed=3,
                                                  response_format={"type": "json_object"}, logit_bias={"125": 6})
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)
        self.assertTrue(answer.choices[0].message.content.lstrip().startswith("{"))
        choice = client().completions.create(model="one", prompt="Yes or no?", max_tokens=20,
                                             extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
        self.assertIn(choice.choices[0].text, ("yes", "no"))

    def test_async(self):
        async def ask():
            async with client(openai.AsyncOpenAI) as asynchronous:
                stream = await asynchronous.chat.completions.create(model="tiny", messages=CHAT, max_tokens=4, temperature=0, stream=True)
                return [chunk async for chunk in stream]

        self.assertEqual(asyncio.run(ask())[-1].choices[0].finish_reason, "length")

    def test_errors_are_the_clients_own(self):
        for error, body in [(openai.NotFoundError, {"model": "onee"}), (openai.BadRequestError, {"temperature": -1}),
                            (openai.BadRequestError, {"max_tokens": -2}), (openai.BadRequestError, {"n": 0})]:
            with self.assertRaises(error) as caught:
                client().chat.completions.create(**{"model": "one", "messages": CHAT, **body})
            self.assertTrue(caught.exception.body["message"])


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
