"""choral.AsyncLLM: streams that lose nothing, cancel, and end with the engine."""

import asyncio
import unittest

import package
from package import PROMPTS, PackageTest

from choral import AsyncLLM, LLM, LoRARequest, SamplingParams
from choral.errors import InvalidArgumentError, NotFoundError, UnavailableError

LONG = SamplingParams(temperature=0, max_tokens=20_000, ignore_eos=True)  # seconds


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 300))


class Streams(PackageTest):
    def test_streams_together_are_the_answers_alone(self):
        count = 256
        params = [SamplingParams(temperature=1, seed=i, max_tokens=1 + i % 24, logprobs=1, ignore_eos=True) for i in range(count)]
        adapters = [[None, "loud", {"quiet": 0.5}][i % 3] for i in range(count)]
        with LLM(self.model, adapters=self.adapters, threads=2) as llm:
            whole = llm.generate([PROMPTS[i % 5] for i in range(count)], params, lora_request=adapters, use_tqdm=False)

        async def both():
            async with await AsyncLLM.load(self.model, adapters=self.adapters, threads=2) as llm:

                async def stream(i, delta):
                    outputs = [o async for o in llm.generate(PROMPTS[i % 5], params[i], lora_request=adapters[i], delta=delta)]
                    self.assertEqual([o.finished for o in outputs], [False] * (len(outputs) - 1) + [True])
                    return outputs

                sums = await asyncio.gather(*(stream(i, False) for i in range(count)))
                for outputs, expected in zip(sums, whole):
                    self.assertEqual(outputs[-1].outputs[0].token_ids, expected.outputs[0].token_ids)
                    self.assertEqual(outputs[-1].outputs[0].text, expected.outputs[0].text)
                    lengths = [len(o.outputs[0].token_ids) for o in outputs]
                    self.assertEqual(lengths, sorted(lengths))
                deltas = await asyncio.gather(*(stream(i, True) for i in range(count)))
                for outputs, expected in zip(deltas, whole):
                    parts = [one for o in outputs for one in o.outputs]
                    self.assertEqual(sum((one.token_ids for one in parts), []), expected.outputs[0].token_ids)
                    self.assertEqual("".join(one.text for one in parts), expected.outputs[0].text)
                    self.assertEqual(sum(len(one.logprobs or ()) for one in parts), len(expected.outputs[0].token_ids))
                self.assertEqual(llm._queues, {})

        run(both())

    def test_an_answer_goes_on_behind_tokens_that_were_given(self):
        params = SamplingParams(temperature=0.9, seed=3, max_tokens=20, presence_penalty=0.5, ignore_eos=True, n=2)

        async def cut():
            async with AsyncLLM(self.model, adapters=self.adapters, threads=1) as llm:

                async def tokens(prompt, params):
                    last = [output async for output in llm.generate(prompt, params, lora_request="loud")][-1]
                    return [one.token_ids for one in last.outputs]

                whole = await tokens("once upon", params)
                for at in (0, 1, 7, 19):
                    given = [whole[0][:at], whole[1][: at // 2]]
                    rest = await tokens({"prompt": "once upon", "continue_token_ids": given}, params)
                    self.assertEqual([a + b for a, b in zip(given, rest)], whole)
                alone = params.clone()
                alone.n = 1
                rest = await tokens({"prompt": "once upon", "continue_token_ids": whole[0][:5]}, alone)
                self.assertEqual(rest, [whole[0][5:]])
                for wrong in ("text", [1.5], ["a"], [[1], 2], 3, {"a": 1}):
                    with self.subTest(wrong), self.raises(InvalidArgumentError, "continue_token_ids"):
                        await tokens({"prompt": "once upon", "continue_token_ids": wrong}, alone)

        run(cut())

    def test_the_last_piece_tells_cached_tokens(self):
        async def ask():
            async with AsyncLLM(self.model, threads=1) as llm:
                for expected in (0, 192):
                    outputs = [o async for o in llm.generate(list(range(200)), SamplingParams(max_tokens=9, ignore_eos=True), delta=True)]
                    self.assertEqual([o.num_cached_tokens for o in outputs], [0] * (len(outputs) - 1) + [expected])

        run(ask())

    def test_a_stop_string_of_digits_is_a_string(self):
        async def both():
            async with AsyncLLM(self.model, threads=1) as llm:
                seven = llm._llm.tokenize("7")
                for stop, stop_token_ids, reason in [("77", None, "77"), (["7"], seven, seven[0]), (["77"], [77], "77")]:
                    params = SamplingParams(temperature=0, max_tokens=9, allowed_token_ids=seven, stop=stop, stop_token_ids=stop_token_ids)
                    for delta in (False, True):
                        last = [output async for output in llm.generate("once", params, delta=delta)][-1]
                        self.assertEqual((last.outputs[-1].finish_reason, last.outputs[-1].stop_reason), ("stop", reason))
                silent = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, detokenize=False)
                last = [output async for output in llm.generate("once", silent)][-1]
                self.assertEqual((last.outputs[0].text, len(last.outputs[0].token_ids)), ("", 3))

        run(both())

    def test_abort_and_leaving_early(self):
        async def both():
            async with AsyncLLM(self.model, threads=1) as llm:
                outputs = []
                async for output in llm.generate("x", LONG, "mine"):
                    outputs.append(output)
                    if len(outputs) == 3:
                        await llm.abort("mine")
                self.assertEqual(outputs[-1].outputs[0].finish_reason, "abort")
                self.assertLess(len(outputs[-1].outputs[0].token_ids), 20_000)
                stream = llm.generate("x", LONG)
                await anext(stream)
                await stream.aclose()
                while llm.stats()["running"]:
                    await asyncio.sleep(0.01)
                task = asyncio.create_task(anext(llm.generate("x", LONG, "cut")))
                await asyncio.sleep(0)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await llm.abort("nobody")
                self.assertEqual(llm._by_id, {})

        run(both())

    def test_errors_reach_who_reads(self):
        async def both():
            async with AsyncLLM(self.model, threads=1) as llm:
                with self.raises(NotFoundError, "nobody"):
                    await anext(llm.generate("x", lora_request="nobody"))
                first = llm.generate("x", LONG, "one")
                await anext(first)
                with self.raises(InvalidArgumentError, "in use"):
                    await anext(llm.generate("x", LONG, "one"))
                await first.aclose()

        run(both())

    def test_adapters_come_and_go_while_it_answers(self):
        async def both():
            async with AsyncLLM(self.model, threads=1) as llm:
                stream = llm.generate("x", LONG)
                await anext(stream)
                await llm.add_lora("loud", self.adapters["loud"])
                await llm.pin_lora("loud")
                self.assertEqual([info.name for info in await llm.list_loras()], ["loud"])
                async for output in llm.generate("x", SamplingParams(max_tokens=2), lora_request=LoRARequest("quiet", 2, self.adapters["quiet"])):
                    last = output
                self.assertEqual([used.name for used in last.adapters], ["quiet"])
                await llm.remove_lora("loud")
                await stream.aclose()

        run(both())

    def test_a_shutdown_ends_those_who_wait(self):
        async def both():
            llm = AsyncLLM(self.model, threads=1)

            async def read():
                async for _ in llm.generate("x", LONG):
                    pass

            readers = [asyncio.create_task(read()) for _ in range(4)]
            while not llm.stats()["running"]:
                await asyncio.sleep(0.01)
            llm.shutdown()
            for result in await asyncio.gather(*readers, return_exceptions=True):
                self.assertIsInstance(result, UnavailableError)
            with self.raises(UnavailableError, "closed"):
                await anext(llm.generate("x"))

        run(both())

    def test_one_loop_after_another(self):
        llm = AsyncLLM(self.model, threads=1)

        async def ask():
            async for output in llm.chat("x", SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)):
                last = output
            return last.outputs[0].token_ids

        self.assertEqual(run(ask()), run(ask()))
        llm.shutdown()


if __name__ == "__main__":
    package.main()
