"""What the worker makes of a request of Dynamo's, without a frontend: dynamo_worker_test.py CHORAL, run by the Python that
CHORAL_DYNAMO_PYTHON names."""

import asyncio
import os
import pathlib
import subprocess
import sys
import unittest

if not (dynamo_python := os.environ.get("CHORAL_DYNAMO_PYTHON")):
    print("skipped: CHORAL_DYNAMO_PYTHON names no Python with Dynamo; ./dev test installs it where the package index can be reached")
    sys.exit(77)
if pathlib.Path(sys.prefix) != pathlib.Path(dynamo_python).parents[1]:
    os.execv(dynamo_python, [dynamo_python, *sys.argv])

from choral import AsyncLLM, SamplingParams  # noqa: E402
from choral.dynamo.errors import dynamo_error  # noqa: E402
from choral.dynamo.predecessor import link_of, prompt_length  # noqa: E402
from choral.dynamo.question import question_of  # noqa: E402
from choral.dynamo.worker import Worker  # noqa: E402
from choral.errors import DeadlineExceededError, InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnavailableError, UnsupportedError  # noqa: E402
from dynamo.llm.exceptions import EngineShutdown, HttpError, InvalidArgument  # noqa: E402

import package  # noqa: E402

PROMPT = list(b"once upon a time")
DEFAULTS = SamplingParams(temperature=0.6, top_k=20)


def question(**fields):
    return question_of({"token_ids": PROMPT, **fields}, "id", DEFAULTS)


class Context:
    """As Dynamo's, of a request that its frontend may give up."""

    trace_id = None

    def __init__(self, own_id="id"):
        self.own_id = own_id
        self.stopped = asyncio.get_running_loop().create_future()

    def id(self):
        return self.own_id

    def is_stopped(self):
        return self.stopped.done()

    def async_killed_or_stopped(self):
        return self.stopped


class Questions(package.PackageTest):
    def test_fields_keep_their_meaning(self):
        asked = question(
            model="loud",
            sampling_options={"n": 2, "best_of": 3, "presence_penalty": 0.5, "frequency_penalty": -0.5, "repetition_penalty": 1.5, "temperature": 0.5,
                              "top_p": 0.75, "top_k": 9, "min_p": 0.25, "seed": -1, "include_stop_str_in_output": True,
                              "allowed_token_ids": [1, 2], "use_beam_search": False, "length_penalty": None, "guided_decoding": {"regex": "a+"}},
            stop_conditions={"max_tokens": 9, "stop": ["x"], "stop_token_ids": [5], "stop_token_ids_visible": [4], "stop_token_ids_hidden": [257],
                             "min_tokens": 2, "ignore_eos": True, "max_thinking_tokens": None},
            output_options={"logprobs": 3, "prompt_logprobs": 1, "skip_special_tokens": False, "return_tokens_as_token_ids": True},
            routing={"lora_name": "quiet", "cache_salt": "salt", "priority": 3, "priority_jump": 3.0, "dp_rank": 0},
            extra_args={"nvext": {"cache_salt": "salt"}, "sampling_options": {"min_p": 0.5}}, annotations=["x"], mdc_sum="0", eos_token_ids=[257],
        )  # fmt: skip
        self.assertEqual((asked.name, asked.cache_salt, asked.priority, asked.prompt, asked.given), ("quiet", "salt", -3, PROMPT, []))
        params = asked.params
        self.assertEqual((params.n, params.best_of, params.presence_penalty, params.frequency_penalty, params.repetition_penalty), (2, 3, 0.5, -0.5, 1.5))
        self.assertEqual((params.temperature, params.top_p, params.top_k, params.min_p, params.seed), (0.5, 0.75, 9, 0.5, 2**64 - 1))
        self.assertEqual((params.max_tokens, params.min_tokens, params.stop, params.stop_token_ids, params.ignore_eos), (9, 2, ["x"], [5, 4, 257], True))
        self.assertEqual((params.logprobs, params.prompt_logprobs, params.skip_special_tokens), (3, 1, False))
        self.assertEqual((params.include_stop_str_in_output, params.allowed_token_ids), (True, [1, 2]))
        self.assertEqual(params.structured_outputs.regex, "a+")

    def test_the_models_own_sampling_counts_where_nothing_is_said(self):
        asked = question(stop_conditions={"max_tokens": None}, sampling_options={"temperature": None})
        self.assertEqual((asked.params.temperature, asked.params.top_k, asked.params.max_tokens), (0.6, 20, None))
        self.assertEqual(asked.params.seed, question().params.seed, "it is the request's, wherever it is answered")
        self.assertNotEqual(asked.params.seed, question_of({"token_ids": PROMPT}, "other", DEFAULTS).params.seed)
        self.assertEqual((DEFAULTS.max_tokens, DEFAULTS.seed), (16, None), "and it stays as it was")

    def test_what_is_not_served_is_an_error_that_names_it(self):
        for fields, says in (
            ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
            ({"multi_modal_data": {"image_url": []}}, "multi_modal_data"),
            ({"prefill_result": {}}, "prefill_result"),
            ({"of_tomorrow": 1}, "of_tomorrow"),
            ({"sampling_options": {"use_beam_search": True}}, "sampling_options.use_beam_search=True"),
            ({"sampling_options": {"length_penalty": 2.0}}, "length_penalty=2.0"),
            ({"sampling_options": {"bad_words_token_ids": [[1]]}}, "bad_words_token_ids"),
            ({"sampling_options": {"of_tomorrow": 1}}, "sampling_options.of_tomorrow"),
            ({"stop_conditions": {"max_thinking_tokens": 3}}, "max_thinking_tokens"),
            ({"output_options": {"of_tomorrow": 1}}, "output_options.of_tomorrow"),
            ({"routing": {"of_tomorrow": 1}}, "routing.of_tomorrow"),
            ({"extra_args": {"of_tomorrow": 1}}, "extra_args.of_tomorrow"),
            ({"sampling_options": {"guided_decoding": {"regex": "a", "whitespace_pattern": " "}}}, "guided_decoding.whitespace_pattern"),
            ({"sampling_options": {"guided_decoding": {"regex": "a", "backend": "outlines"}}}, "guided_decoding.backend='outlines'"),
            ({"sampling_options": {"guided_decoding": {"json": {}}}, "require_reasoning": True}, "--dyn-reasoning-parser"),
        ):
            with self.subTest(fields), self.raises(UnsupportedError, says):
                question(**fields)
        for wrong in ({"token_ids": "text"}, {"token_ids": [1, "2"]}, {"token_ids": [-1]}, {"sampling_options": 3}, {"routing": []}, {"model": 3},
                      {"routing": {"priority": "high"}}, {"stop_conditions": {"stop_token_ids": 3}}, {"sampling_options": {"seed": "x"}}):
            with self.subTest(wrong), self.raises(InvalidArgumentError):
                question(**wrong)

    def test_a_migrated_request_is_prompt_and_answer_so_far(self):
        given = list(b" there")
        link = link_of("id", None, PROMPT)
        asked = question(token_ids=PROMPT + given, migration_link=link, stop_conditions={"max_tokens": 10, "min_tokens": 2})
        self.assertEqual((asked.prompt, asked.given), (PROMPT, given))
        self.assertEqual((asked.params.max_tokens, asked.params.min_tokens), (10 + len(given), 2 + len(given)))
        asked = question(token_ids=PROMPT + given, migration_link=link, stop_conditions={"max_tokens": 10, "min_tokens": 0})
        self.assertEqual(asked.params.min_tokens, 0, "there are as many")

    def test_a_link_of_something_else_ends_no_prompt(self):
        tokens = PROMPT + [1, 2]
        ours = link_of("id", None, PROMPT)
        self.assertEqual(prompt_length("id", ours, tokens), len(PROMPT))
        self.assertEqual(prompt_length("id", link_of("id", "ab" * 16, PROMPT), tokens), len(PROMPT))
        self.assertEqual(link_of("id", "ab" * 16, PROMPT)["trace_id"], "ab" * 16)
        for link in (None, "x", {}, {"span_id": 3}, {"span_id": "0" * 16}, {"span_id": "g" * 16}, {"span_id": ours["span_id"][:8] + "ffffffff"},
                     {"span_id": link_of("id", None, tokens)["span_id"][:8] + "000000ff"}):
            self.assertEqual(prompt_length("id", link, tokens), len(tokens), link)
        self.assertEqual(prompt_length("other", ours, tokens), len(tokens), "another request's")
        self.assertEqual(prompt_length("id", ours, [9] + tokens), len(tokens) + 1, "another prompt's")

    def test_errors_say_whether_another_worker_is_asked(self):
        for error, kind in ((InvalidArgumentError, InvalidArgument), (NotFoundError, InvalidArgument), (UnsupportedError, InvalidArgument),
                            (UnavailableError, EngineShutdown)):
            self.assertIs(type(dynamo_error(error("why"))), kind)
            self.assertEqual(str(dynamo_error(error("why"))), "why")
        for error, status in ((ResourceExhaustedError, 429), (DeadlineExceededError, 504)):
            told = dynamo_error(error("why"))
            self.assertEqual((type(told), told.code, told.message), (HttpError, status, "why"))


class Command(package.PackageTest):
    def refused(self, *flags):
        command = [sys.executable, "-m", "choral.dynamo", "--discovery-backend", "file", *map(str, flags)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "DYN_FILE_KV": self.folder + "/told"})
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stderr

    def test_a_model_without_files_for_the_frontend_says_what_to_give(self):
        gguf = pathlib.Path(self.folder) / "tiny.gguf"
        subprocess.run([package.CHORAL, "quantize", self.model, gguf, "--scheme", "q8_0", "--format", "gguf", "-q"], check=True, stdout=subprocess.DEVNULL)
        code, said = self.refused("--model", gguf)
        self.assertEqual(code, 1, said)
        self.assertIn("--model-files", said)

    def test_wrong_arguments_are_said_before_anything_is_told_to_dynamo(self):
        for flags, says in ((["--model", self.model, "--max-num-seqs", "0"], "--max-num-seqs 0"), (["--model", self.model, "--lora", "x"], "NAME=PATH"),
                            (["--model", self.model, "--lora", f"tiny={self.adapters['loud']}", "--served-model-name", "tiny"], "--served-model-name"),
                            (["--model", self.model, "--dyn-tool-call-parser", "nobody's"], "hermes"),
                            (["--model", self.model, "--custom-jinja-template", "/no.jinja"], "/no.jinja"), (["--model", "/nowhere"], "/nowhere"),
                            (["--model", self.model, "--endpoint", "dyn://two.parts"], "NAMESPACE.COMPONENT.ENDPOINT")):
            with self.subTest(flags):
                code, said = self.refused(*flags)
                self.assertIn(code, (1, 2), said)
                self.assertIn(says, said)
        self.assertFalse(os.path.exists(self.folder + "/told"))


class Answers(package.PackageTest):
    def run_with_worker(self, use):
        async def run():
            async with await AsyncLLM.load(str(self.model), adapters=self.adapters, threads=1) as llm:
                await use(llm, Worker(llm, "tiny"))

        asyncio.run(run())

    LONG = {"max_tokens": 30000, "min_tokens": 30000, "ignore_eos": True}

    def test_a_request_that_is_given_up_ends_at_once(self):
        async def use(llm, worker):
            context = Context()
            chunks = []
            async for chunk in worker.generate({"token_ids": PROMPT, "stop_conditions": self.LONG}, context):
                chunks.append(chunk)
                if len(chunks) == 1:
                    context.stopped.set_result(True)
            self.assertEqual(chunks[-1]["finish_reason"], "cancelled")
            self.assertLess(sum(len(chunk["token_ids"]) for chunk in chunks), 30000)
            for _ in range(1000):  # the engine's step in progress ends first
                if llm.stats()["running"] == 0:
                    return
                await asyncio.sleep(0.05)
            self.fail("the engine goes on with it")

        self.run_with_worker(use)

    def test_one_that_leaves_sends_its_requests_on(self):
        async def use(llm, worker):
            begun = asyncio.Event()
            chunks = []

            async def ask():
                async for chunk in worker.generate({"token_ids": PROMPT, "stop_conditions": self.LONG, "model": "loud"}, Context()):
                    chunks.append(chunk)
                    begun.set()

            asked = asyncio.create_task(ask())
            await begun.wait()
            await worker.finish(0)
            self.assertFalse(asked.done())
            await worker.leave()
            with self.raises(EngineShutdown, "goes on at another one"):
                await asked
            self.assertFalse([chunk for chunk in chunks if "finish_reason" in chunk or "completion_usage" in chunk])
            with self.raises(EngineShutdown, "shutting down"):
                await anext(worker.generate({"token_ids": PROMPT}, Context()))

            # What it gave, and what another one gives behind it, are the whole.
            given = [token for chunk in chunks for token in chunk["token_ids"]][:50]
            other = Worker(llm, "tiny")
            stops = {"max_tokens": 100, "ignore_eos": True}
            whole = await tokens_of(other, {"token_ids": PROMPT, "stop_conditions": stops, "model": "loud"})
            rest = await tokens_of(other, {"token_ids": PROMPT + given, "stop_conditions": {**stops, "max_tokens": 100 - len(given)},
                                           "model": "loud", "migration_link": chunks[0]["worker_trace_link"]})
            self.assertEqual(given + rest, whole)

        async def tokens_of(worker, request):
            return [token async for chunk in worker.generate(request, Context()) for token in chunk["token_ids"]]

        self.run_with_worker(use)

    def test_one_that_leaves_or_is_given_up_before_its_answer_begins_makes_none(self):
        async def use(llm, worker):
            moved = {"token_ids": PROMPT + [1, 2], "migration_link": link_of("id", None, PROMPT), "output_options": {"prompt_logprobs": 1}}
            context = Context()
            asked = asyncio.create_task(anext(worker.generate({**moved, "stop_conditions": self.LONG}, context)))
            await asyncio.sleep(0)  # in the log-probabilities of the prompt
            context.stopped.set_result(True)
            with self.assertRaises(StopAsyncIteration):
                await asked
            asked = asyncio.create_task(anext(worker.generate({**moved, "stop_conditions": self.LONG}, Context())))
            await asyncio.sleep(0)
            await worker.leave()
            with self.raises(EngineShutdown, "goes on at another one"):
                await asked

        self.run_with_worker(use)

    def test_a_migrated_answer_that_was_complete_says_its_end(self):
        async def use(llm, worker):
            request = {"token_ids": PROMPT + [1, 2, 3], "migration_link": link_of("id", None, PROMPT), "stop_conditions": {"max_tokens": 0, "ignore_eos": True}}
            chunks = [chunk async for chunk in worker.generate(request, Context())]
            self.assertEqual([(chunk["token_ids"], chunk.get("finish_reason")) for chunk in chunks], [([], "length")])
            self.assertEqual(chunks[-1]["completion_usage"]["completion_tokens"], 3)

        self.run_with_worker(use)

    def test_log_probabilities_of_the_prompt_come_last_wherever_it_ends(self):
        async def use(llm, worker):
            asked = {"output_options": {"logprobs": 2, "prompt_logprobs": 2}, "sampling_options": {"temperature": 0.0}}
            chunks = [chunk async for chunk in worker.generate({"token_ids": PROMPT, "stop_conditions": {"max_tokens": 5}, **asked}, Context())]
            self.assertEqual([("engine_data" in chunk) for chunk in chunks], [False] * (len(chunks) - 1) + [True])
            of_prompt = chunks[-1]["engine_data"]["prompt_logprobs"]
            self.assertEqual((len(of_prompt), of_prompt[0]), (len(PROMPT), None))
            for position, token in zip(of_prompt[1:], PROMPT[1:]):
                self.assertIn(str(token), position)
            tokens = [token for chunk in chunks for token in chunk["token_ids"]]
            self.assertEqual(len([value for chunk in chunks for value in chunk["log_probs"]]), len(tokens))
            for chunk in chunks:
                for token, own, best in zip(chunk["token_ids"], chunk["log_probs"], chunk["top_logprobs"]):
                    self.assertEqual([one["rank"] for one in best], [1, 2])
                    self.assertEqual((best[0]["token_id"], best[0]["logprob"]), (token, own), "it is the likeliest")
                    self.assertEqual(bytes(best[0]["bytes"]), llm.token_bytes(token))
            moved = {"token_ids": PROMPT + tokens[:2], "migration_link": chunks[0]["worker_trace_link"], "stop_conditions": {"max_tokens": 3}}
            rest = [chunk async for chunk in worker.generate({**moved, **asked}, Context())]
            self.assertEqual([token for chunk in rest for token in chunk["token_ids"]], tokens[2:])
            self.assertEqual(rest[-1]["engine_data"]["prompt_logprobs"], of_prompt)

        self.run_with_worker(use)

    def test_errors_are_the_requests_own(self):
        async def use(llm, worker):
            for request, says in (({"token_ids": [99999]}, "99999"), ({"token_ids": PROMPT, "model": "nobody"}, "nobody"),
                                  ({"token_ids": PROMPT, "sampling_options": {"top_p": 3.0}}, "top_p"), ({"token_ids": []}, "prompt")):
                with self.raises(InvalidArgument, says):
                    await anext(worker.generate(request, Context()))
            await worker.finish(60)  # and none of them is in flight

        self.run_with_worker(use)


if __name__ == "__main__":
    package.main()
