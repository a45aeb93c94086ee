"""Outlines on choral.outlines, and its own vLLM model on choral.compat.vllm: answers keep the form that was asked for."""

import enum
import json
import sys
import unittest

try:
    import outlines
    from pydantic import BaseModel
except ModuleNotFoundError as missing:
    print(f"skipped: there is no {missing.name}; ./dev test installs it")
    sys.exit(77)

import package
from package import PackageTest

from choral import LLM, SamplingParams
from choral.errors import UnsupportedError
from choral.outlines import from_choral


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Person(BaseModel):
    grown: bool
    colour: Colour


class Forms(PackageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.llm = cls.enterClassContext(LLM(cls.model, adapters=cls.adapters, threads=2))
        cls.model_of_outlines = from_choral(cls.llm)

    def test_a_form_is_kept(self):
        params = SamplingParams(temperature=1, seed=1, max_tokens=600)
        model = self.model_of_outlines
        self.assertIn(model("Which colour?", Colour, sampling_params=params), ["red", "blue"])
        person = Person.model_validate_json(model("Who?", Person, sampling_params=params))
        self.assertIsInstance(person.grown, bool)
        self.assertRegex(model("When?", outlines.types.Regex(r"[0-9]{2}:[0-9]{2}"), sampling_params=params), r"^\d\d:\d\d$")
        self.assertIs(type(model("Say something.", sampling_params=params)), str)
        self.assertIsNone(params.structured_outputs, "what was given is as it was")

    def test_batches_conversations_and_adapters(self):
        params = SamplingParams(temperature=1, seed=3, max_tokens=12)
        model = self.model_of_outlines
        many = model.batch(["one", "two", "three"], Colour, sampling_params=params, use_tqdm=False)
        self.assertTrue(all(answer in (["red"], ["blue"]) for answer in many), many)
        chat = outlines.inputs.Chat([{"role": "user", "content": "once upon"}])
        plain, loud = (model(chat, sampling_params=params, lora_request=who) for who in (None, "loud"))
        self.assertEqual(plain, self.llm.chat("once upon", params)[0].outputs[0].text)
        self.assertNotEqual(plain, loud)

    def test_the_model_of_vllm(self):
        import choral.compat.vllm  # noqa: F401  before Outlines looks for vllm
        import vllm

        params = vllm.SamplingParams(temperature=1, seed=1, max_tokens=60)
        with vllm.LLM(str(self.model), threads=1) as llm:
            self.assertIn(outlines.from_vllm_offline(llm)("Which colour?", Colour, sampling_params=params), ["red", "blue"])

    def test_what_is_not_served_says_so(self):
        with self.raises(UnsupportedError, "AsyncLLM"):
            next(iter(self.model_of_outlines.stream("once")))
        with self.raises(UnsupportedError, "whitespace_pattern"):
            self.model_of_outlines("x", outlines.types.JsonSchema(json.dumps({"type": "object"}), whitespace_pattern=" ?"))


if __name__ == "__main__":
    package.main()
