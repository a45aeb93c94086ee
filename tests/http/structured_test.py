#!/usr/bin/env python3
"""Answers of a given form through OpenAI's own client: structured_test.py CHORAL [unittest arguments]. The model is noise, so what holds
its answers to a form is the server. Needs xgrammar."""

import asyncio
import re
import sys
import unittest
from typing import Literal, Optional

import served

openai = served.need("openai")
served.need_xgrammar()
from pydantic import BaseModel, Field  # noqa: E402

FILES = served.Files(context=2048)
SERVER = None
CHAT = [{"role": "user", "content": "A city and its weather."}]


class Place(BaseModel):
    city: Literal["Bergen", "Lima"]
    height_m: int = Field(ge=0, le=9000)
    capital: bool


class Weather(BaseModel):
    place: Place
    sky: list[Literal["clear", "cloud", "rain"]] = Field(min_length=1, max_length=3)
    wind: Optional[Literal["north", "south"]]


class GetWeather(BaseModel):
    """The weather of a city."""
    city: Literal["Bergen", "Lima"]
    days: int = Field(ge=1, le=5)


class Now(BaseModel):
    zone: Literal["UTC", "CET"]


def setUpModule():
    global SERVER
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root)


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)


def client(kind=openai.OpenAI):
    return kind(base_url=f"http://127.0.0.1:{SERVER.port}/v1", api_key="none", max_retries=0, timeout=served.LONG)


class ParsedAnswersTest(unittest.TestCase):
    def test_a_schema_of_pydantic(self):
        seen = set()
        for seed in range(8):
            answer = client().chat.completions.parse(model="one", messages=CHAT, response_format=Weather, seed=seed, max_tokens=1000)
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            parsed = answer.choices[0].message.parsed
            self.assertIsInstance(parsed, Weather)
            Weather.model_validate_json(answer.choices[0].message.content, strict=True)
            seen.add(answer.choices[0].message.content)
        self.assertGreater(len(seen), 1, "the answers are the model's own within the form")

    def test_a_stream_that_is_parsed(self):
        with client().chat.completions.stream(model="one", messages=CHAT, response_format=Weather, seed=1, max_tokens=1000) as stream:
            pieces = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion().choices[0].message
        self.assertEqual(final.content, pieces)
        whole = client().chat.completions.parse(model="one", messages=CHAT, response_format=Weather, seed=1, max_tokens=1000)
        self.assertEqual(final.parsed, whole.choices[0].message.parsed)

    def test_asynchronously(self):
        async def ask():
            async with client(openai.AsyncOpenAI) as asynchronous:
                return await asyncio.gather(*(asynchronous.chat.completions.parse(
                    model=model, messages=CHAT, response_format=Place, seed=seed, max_tokens=1000)
                    for seed, model in enumerate(["tiny", "one", "two", "one"])))

        for answer in asyncio.run(ask()):
            self.assertIsInstance(answer.choices[0].message.parsed, Place)

    def test_forms_of_other_servers(self):
        def text(**form):
            answer = client().completions.create(model="one", prompt="x", max_tokens=200, seed=1, extra_body=form)
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            return answer.choices[0].text
        self.assertIn(text(grammar='root ::= "ab" | "cd"'), ("ab", "cd"))
        self.assertIn(text(ebnf='root ::= "ab" | "cd"'), ("ab", "cd"))
        self.assertRegex(text(regex="[ab]{3}"), "^[ab]{3}$")
        schema = Now.model_json_schema()
        for form in ({"json_schema": schema}, {"response_format": {"type": "json_object", "schema": schema}}):
            Now.model_validate_json(text(**form), strict=True)

    def test_responses(self):
        answer = client().responses.parse(model="one", input="A city.", text_format=Weather, max_output_tokens=1000)
        self.assertIsInstance(answer.output_parsed, Weather)
        self.assertEqual((answer.text.format.type, answer.text.format.name), ("json_schema", "Weather"))

    def test_calls_of_functions(self):
        tools = [openai.pydantic_function_tool(GetWeather), openai.pydantic_function_tool(Now)]
        for choice in ("required", {"type": "function", "function": {"name": "Now"}}):
            for seed in range(4):
                answer = client().chat.completions.parse(model="one", messages=CHAT, tools=tools, tool_choice=choice, seed=seed, max_tokens=1000)
                calls = answer.choices[0].message.tool_calls
                self.assertTrue(calls, answer)
                self.assertEqual(len({call.id for call in calls}), len(calls))
                for call in calls:
                    wanted = {"GetWeather": GetWeather, "Now": Now}[call.function.name]
                    self.assertIsInstance(call.function.parsed_arguments, wanted)
                    self.assertTrue(choice == "required" or wanted is Now)

    def test_an_answer_that_was_cut_off_is_told_from_a_wrong_one(self):
        with self.assertRaises(openai.LengthFinishReasonError):
            client().chat.completions.parse(model="one", messages=CHAT, response_format=Weather, max_tokens=3)


class FormsTest(unittest.TestCase):
    def text(self, **form):
        answer = client().completions.create(model="one", prompt="x", max_tokens=500, seed=4, extra_body={"structured_outputs": form})
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        return answer.choices[0].text

    def test_expressions_grammars_and_choices(self):
        self.assertRegex(self.text(regex="[ab]{3}-[0-9]{2}"), re.compile(r"\A[ab]{3}-[0-9]{2}\Z"))
        self.assertRegex(self.text(grammar='root ::= ("ha" | "ho") "!"'), re.compile(r"\Ah[ao]!\Z"))
        self.assertIn(self.text(choice=["yes", "no"]), ("yes", "no"))
        Place.model_validate_json(self.text(json=Place.model_json_schema()), strict=True)

    def test_a_wide_schema(self):
        fields = {f"field_{i}": {"type": "string", "maxLength": 20 + i} for i in range(500)}
        schema = {"type": "object", "properties": fields, "required": list(fields)}
        answer = client().completions.create(model="one", prompt="x", max_tokens=200, seed=4, extra_body={"structured_outputs": {"json": schema}})
        self.assertTrue(answer.choices[0].text.startswith("{"))

    def test_forms_that_cannot_be_are_refused(self):
        for form in ({"regex": "("}, {"grammar": "root ::= missing"}, {"json": {"type": "nothing"}}, {"regex": "a{1000000}"},
                     {"json": {"$ref": "#/nowhere"}}, {"json": {"not": {}}}):
            with self.assertRaises(openai.BadRequestError, msg=form) as caught:
                self.text(**form)
            self.assertTrue(caught.exception.body["message"])

    def test_rows_with_and_without_a_form_share_steps(self):
        plain = {"model": "one", "prompt": "Hello", "max_tokens": 40, "temperature": 0}
        alone = SERVER.post("/v1/completions", **plain)["choices"][0]["text"]

        async def ask():
            async with client(openai.AsyncOpenAI) as asynchronous:
                held = [asynchronous.completions.create(model="one", prompt="x", max_tokens=100, seed=i,
                                                        extra_body={"structured_outputs": {"regex": "[a-z]{20,60}"}}) for i in range(6)]
                return await asyncio.gather(*held, asynchronous.completions.create(**plain))

        *held, free = asyncio.run(ask())
        self.assertEqual(free.choices[0].text, alone)
        for answer in held:
            self.assertRegex(answer.choices[0].text, re.compile(r"\A[a-z]{20,60}\Z"))


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
