"""Dynamo's own frontend with workers of ours: dynamo_test.py CHORAL, run by the Python that CHORAL_DYNAMO_PYTHON names. Answers are held
against those of the engine in this process."""

import os
import pathlib
import signal
import sys
import unittest

if not (dynamo_python := os.environ.get("CHORAL_DYNAMO_PYTHON")):
    print("skipped: CHORAL_DYNAMO_PYTHON names no Python with Dynamo; ./dev test installs it where the package index can be reached")
    sys.exit(77)
if pathlib.Path(sys.prefix) != pathlib.Path(dynamo_python).parents[1]:
    os.execv(dynamo_python, [dynamo_python, *sys.argv])

import numpy as np  # noqa: E402
from choral import LLM, SamplingParams  # noqa: E402

import package  # noqa: E402
from dynamo_fleet import MODEL, Fleet, text_of  # noqa: E402
from package import tiny_model  # noqa: E402

CHAT = [{"role": "user", "content": "who are you?"}]
LONG = {"max_tokens": 6000, "min_tokens": 6000, "ignore_eos": True}  # it takes a while, however fast the machine is
CUT_AT = 10  # chunks of such an answer
TRIES = 10
LONGEST_S = 300  # that nothing here takes on any machine


def floats(numbers):
    """As 32 bits hold them: JSON has them with as many digits as that needs."""
    return np.array(list(numbers), dtype=np.float32).tolist()


def choices_of(chunks):
    return [choice for chunk in chunks for choice in chunk["choices"]]


class FleetTest(package.PackageTest):
    FLAGS = ("--drain-timeout", "3600")  # as long as an answer takes

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = pathlib.Path(cls.folder) / "root"
        for seed, name in enumerate(["loud", "quiet"], start=1):
            tiny_model.write_adapter(root / name, seed=seed)
        cls.llm = cls.enterClassContext(LLM(str(cls.model), adapters=cls.adapters, threads=1))
        cls.fleet = cls.enterClassContext(Fleet(pathlib.Path(cls.folder) / "fleet", cls.model, root, flags=cls.FLAGS))


    def undisturbed(self, path, body):
        return text_of(choices_of(self.fleet.stream(path, body)))

    def lose(self, path, body, *signs):
        """The answer to this must be whole, whoever gives it, while its worker is sent signals. Whether it went on elsewhere."""
        expected = self.undisturbed(path, body)
        lost = []

        def look(chunks):
            if len(chunks) == CUT_AT:
                lost.append(self.fleet.workers.pop(chunks[0]["nvext"]["worker_id"]["decode_worker_id"]))
                for number, sign in enumerate(signs):
                    if number > 0:
                        lost[0].wait_for(lambda: "this worker leaves" in lost[0].told())
                    lost[0].process.send_signal(sign)

        migrated = self.fleet.frontend.told().count("Stream disconnected")
        chunks = self.fleet.stream(path, {**body, "stream_options": {"include_usage": True}}, look)
        choices = choices_of(chunks)
        self.assertEqual(text_of(choices), expected)
        self.assertEqual(choices[-1]["finish_reason"], "length")
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], LONG["max_tokens"])
        self.assertLess(chunks[-1]["usage"]["prompt_tokens"], 64)
        if not lost:
            return False
        self.assertEqual(lost[0].process.wait(LONGEST_S), -signal.SIGKILL if signal.SIGKILL in signs else 0, lost[0].told())
        self.fleet.add_worker()
        return self.fleet.frontend.told().count("Stream disconnected") > migrated

    def lose_in_the_middle(self, path, body, *signs):
        """Where this process is scheduled late, an answer may be complete before its worker is lost: that one counts as none."""
        for _ in range(TRIES):
            if self.lose(path, body, *signs):
                return
        self.fail(f"none of {TRIES} answers was in the middle when its worker was lost")


class Answers(FleetTest):
    def own(self, prompt, adapter=None, **params):
        ask = self.llm.chat if prompt is CHAT else self.llm.generate
        output = ask([prompt], SamplingParams(**params), lora_request=adapter, use_tqdm=False)[0]
        return [text_of([{"text": one.text}]) for one in output.outputs]

    def test_the_same_text_as_the_engine_says(self):
        for adapter in (None, "loud", "quiet"):
            for params in ({"temperature": 0}, {"temperature": 0.9, "seed": 7, "top_p": 0.9, "top_k": 40, "frequency_penalty": 0.5},
                           {"seed": -3, "min_p": 0.02, "repetition_penalty": 1.1, "min_tokens": 30}):
                asked = {"model": adapter or MODEL, "max_tokens": 40, **params}
                own = {"max_tokens": 40, **params, "seed": params.get("seed", 0) % 2**64}
                with self.subTest(asked):
                    for path, prompt, body in (("completions", "once upon", {"prompt": "once upon"}),
                                               ("chat/completions", CHAT, {"messages": CHAT})):
                        expected = self.own(prompt, adapter, **own)[0]
                        whole = self.fleet.post(path, {**asked, **body})
                        self.assertEqual(text_of(whole["choices"]), expected)
                        chunks = self.fleet.stream(path, {**asked, **body})
                        self.assertEqual(text_of(choices_of(chunks)), expected)

    def test_several_answers_count_their_tokens_and_say_why_they_ended(self):
        whole = self.fleet.post("chat/completions", {"model": "loud", "messages": CHAT, "n": 3, "seed": 11, "max_tokens": 24, "ignore_eos": True})
        expected = self.own(CHAT, "loud", n=3, seed=11, max_tokens=24, ignore_eos=True)
        self.assertEqual([text_of([choice]) for choice in sorted(whole["choices"], key=lambda choice: choice["index"])], expected)
        self.assertEqual({choice["finish_reason"] for choice in whole["choices"]}, {"length"})
        self.assertEqual(whole["usage"]["completion_tokens"], 72)

    def test_stop_strings_end_it(self):
        whole = self.own("once upon", max_tokens=200, temperature=0)[0]
        stop = next(char for char in whole[len(whole) // 2 :] if char.isascii() and char.isprintable())
        body = {"model": MODEL, "prompt": "once upon", "max_tokens": 200, "temperature": 0, "stop": [stop]}
        ended = self.fleet.post("completions", body)["choices"][0]
        self.assertEqual(text_of([ended]), whole[:whole.index(stop)])
        self.assertEqual(ended["finish_reason"], "stop")

    def test_log_probabilities(self):
        form = {"type": "json_schema", "json_schema": {"name": "it", "schema": {"enum": ["a lark at dawn", "an owl at night"]}}}
        body = {"model": "loud", "messages": CHAT, "temperature": 0, "max_tokens": 40, "response_format": form, "logprobs": True, "top_logprobs": 2}
        told = self.fleet.post("chat/completions", body)["choices"][0]["logprobs"]["content"]
        params = SamplingParams(temperature=0, max_tokens=40, logprobs=2)
        own = self.llm.chat(CHAT, params, lora_request="loud", use_tqdm=False, response_format=form)[0].outputs[0]
        self.assertEqual([one["token_id"] for one in told], own.token_ids[: len(told)])
        self.assertEqual(floats(one["logprob"] for one in told), own.logprobs.token_logprobs[: len(told)].tolist())
        self.assertGreaterEqual(len(told), len(own.token_ids) - 1)  # the end's token may be left out
        for one, best in zip(told, own.logprobs.top_logprobs.tolist()):
            self.assertLessEqual(set(best), set(floats(other["logprob"] for other in one["top_logprobs"])))

    def test_what_is_not_served_is_refused_by_name(self):
        for asked, says in (({"nvext": {"max_thinking_tokens": 4}}, "max_thinking_tokens"), ({"prompt_logprobs": 100000}, "prompt_logprobs")):
            refused = self.fleet.post("completions", {"model": MODEL, "prompt": "x", "max_tokens": 3, **asked}, status=400)
            self.assertIn(says, refused["message"])
        self.fleet.post("completions", {"model": "nobody", "prompt": "x"}, status=404)

    def test_a_worker_that_leaves_ends_its_answers_unless_it_is_told_to_hurry(self):
        asked = "completions", {"model": "loud", "prompt": "a time there", "seed": 5, **LONG}
        self.assertFalse(self.lose(*asked, signal.SIGTERM))
        self.lose_in_the_middle(*asked, signal.SIGTERM, signal.SIGTERM)

    def test_adapters_of_the_root_come_and_go(self):
        folder = tiny_model.write_adapter(self.fleet.adapter_root / "late", seed=3)
        self.fleet.frontend.wait_for(lambda: "late" in self.fleet.names())
        self.assertEqual(self.fleet.post("completions", {"model": "late", "prompt": "x", "max_tokens": 2})["usage"]["prompt_tokens"], 1)
        folder.rename(pathlib.Path(self.folder) / "late")
        self.fleet.frontend.wait_for(lambda: "late" not in self.fleet.names())


class Migration(FleetTest):
    """Each answer loses its worker in the middle, and goes on at another one."""

    FLAGS = ("--drain-timeout", "0")
    ASKED = (
        ("completions", {"model": MODEL, "prompt": "once upon", "temperature": 0, **LONG}),
        ("completions", {"model": "loud", "prompt": "a time there", "seed": 5, "presence_penalty": 0.7, "frequency_penalty": 0.3, **LONG}),
        ("chat/completions", {"model": "quiet", "messages": CHAT, "seed": 8, "temperature": 0.8, "top_p": 0.95, **LONG}),
    )

    def test_of_a_worker_that_dies(self):
        for path, body in self.ASKED:
            with self.subTest(path=path, model=body["model"]):
                self.lose_in_the_middle(path, body, signal.SIGKILL)

    def test_of_a_worker_that_shuts_down(self):
        self.lose_in_the_middle(*self.ASKED[1], signal.SIGTERM)


if __name__ == "__main__":
    package.main()
