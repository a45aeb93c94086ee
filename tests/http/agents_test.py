#!/usr/bin/env python3
"""One run each of what people build agents with: agents_test.py CHORAL [unittest arguments]. instructor and pydantic-ai ask a tiny model for
objects, which grammars hold it to; smolagents and dspy read what a test wrote (scripted_model.py)."""

import os
import pathlib
import sys
import tempfile
import unittest
from typing import Literal

import served
import scripted_model

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"  # else dspy asks the network for prices
os.environ["DSPY_CACHEDIR"] = os.path.join(tempfile.gettempdir(), f"dspy-{os.getpid()}")
for package in ("openai", "instructor", "pydantic_ai", "smolagents", "dspy"):
    served.need(package)
served.need_xgrammar()
import dspy  # noqa: E402
import instructor  # noqa: E402
import openai  # noqa: E402
import smolagents  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from pydantic_ai import Agent  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

TEMP = tempfile.TemporaryDirectory()
SCRIPTS = {
    "?": ["Thought: I know it.\n<code>\n", "final_answer(6 * 7)\n", "</code>"],
    ".": ["[[ ## answer ## ]]\n", "Forty", "-two", "\n\n[[ ## completed ## ]]\n"],
}


class Animal(BaseModel):
    kind: Literal["bird", "fish", "horse"]
    swims: bool


class FormsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        files = served.Files(context=2048)
        cls.addClassCleanup(files.temp.cleanup)
        cls.server = served.Server(files.model, "--adapter-root", files.root)
        cls.url = f"http://127.0.0.1:{cls.server.port}/v1"

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, "".join(cls.server.said)

    def test_instructor(self):
        plain = openai.OpenAI(base_url=self.url, api_key="none", max_retries=0)
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
            client = instructor.from_openai(plain, mode=mode)
            self.assertIsInstance(client.chat.completions.create(model="one", response_model=Animal, max_retries=0, temperature=0, max_tokens=200,
                                                      messages=[{"role": "user", "content": "Describe an animal."}]), Animal)

    def test_pydantic_ai(self):
        model = OpenAIChatModel("two", provider=OpenAIProvider(base_url=self.url, api_key="none"))
        agent = Agent(model, output_type=Animal, system_prompt="You describe animals.", retries=0,
                      model_settings={"temperature": 0, "max_tokens": 200, "parallel_tool_calls": False})
        result = agent.run_sync("Describe one.")
        self.assertIsInstance(result.output, Animal)
        self.assertEqual(result.usage.requests, 1)


class WordsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        model = scripted_model.write_scripted_model(pathlib.Path(TEMP.name) / "scripted", SCRIPTS, context=16384)
        cls.addClassCleanup(TEMP.cleanup)
        cls.server = served.Server(model)
        cls.url = f"http://127.0.0.1:{cls.server.port}/v1"

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, "".join(cls.server.said)

    def test_smolagents(self):
        model = smolagents.OpenAIServerModel(model_id="base", api_base=self.url, api_key="none", temperature=0, max_tokens=64)
        agent = smolagents.CodeAgent(tools=[], model=model, max_steps=1, verbosity_level=0)
        self.assertEqual(agent.run("What is six times seven?"), 42)

    def test_dspy(self):
        with dspy.context(lm=dspy.LM("openai/base", api_base=self.url, api_key="none", temperature=0, max_tokens=64, cache=False)):
            self.assertEqual(dspy.Predict("question -> answer")(question="What is six times seven?").answer, "Forty-two")


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main()
