"""choral.LLM: what it answers, beside the program on the same files; its adapters; what it refuses; how it ends."""

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from xml.etree import ElementTree

import numpy as np
import package
from package import PROMPTS, PackageTest

import choral
from choral import LLM, ChoralError, LoRARequest, SamplingParams, StructuredOutputsParams
from choral.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError, UnavailableError, UnsupportedError
from choral.server import Server

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def read_safetensors(path):
    """Name → array, without the package of that name."""
    raw = pathlib.Path(path).read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    return {name: np.frombuffer(raw[begin + at[0]:begin + at[1]], np.float32).reshape(tensor["shape"])
            for name, tensor in header.items() if name != "__metadata__" for at in [tensor["data_offsets"]]}


class Answers(PackageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.llm = cls.enterClassContext(LLM(cls.model, adapters=cls.adapters, threads=2))

    def ids(self, *args, **kwargs):
        return [output.outputs[0].token_ids for output in self.llm.generate(*args, use_tqdm=False, **kwargs)]

    def test_guesses_change_no_answer(self):
        prompt = "once upon a time, once upon a time, once upon a time, once upon"
        free = self.ids(prompt, SamplingParams(temperature=0, max_tokens=60))
        predicted = SamplingParams(temperature=0, max_tokens=60, prediction=" a time, once upon a time")
        self.assertEqual(self.ids(prompt, predicted), free)
        with LLM(self.model, threads=1) as llm:
            plain = SamplingParams(temperature=0, max_tokens=60, prediction=" a time", speculative=False)
            self.assertEqual([llm.generate(prompt, plain, use_tqdm=False)[0].outputs[0].token_ids], free)
            self.assertEqual(llm.stats()["guessed_tokens"], 0)
            with self.raises(InvalidArgumentError, "prediction must be a text"):
                llm.generate(prompt, SamplingParams(prediction=[1, 2]), use_tqdm=False)

    def test_answers_are_those_of_the_program_and_of_the_server(self):
        params = SamplingParams(temperature=0.9, seed=5, max_tokens=16)
        adapters = [None, "loud", "quiet", {"loud": 0.5, "quiet": 1.0}, "loud"]
        ours = self.ids(PROMPTS, params, lora_request=adapters)
        lines = []
        for prompt, adapter in zip(PROMPTS, adapters):
            line = {"prompt": prompt, "temperature": 0.9, "seed": 5, "max_tokens": 16}
            if isinstance(adapter, dict):
                line["lora"] = [{"name": name, "scale": scale} for name, scale in adapter.items()]
            elif adapter:
                line["lora"] = adapter
            lines.append(line)
        source = pathlib.Path(self.folder) / "in.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        loras = [part for name, path in self.adapters.items() for part in ("--lora", f"{name}={path}")]
        done = subprocess.run([package.CHORAL, "generate", self.model, "--input", source, "--threads", "1", *loras], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        theirs = [json.loads(line)["token_ids"] for line in done.stdout.splitlines()]
        self.assertEqual(ours, theirs)
        self.assertEqual(len({tuple(ids) for ids in ours}), len(ours), "every adapter changes what is said")

        import urllib.request
        with Server(self.model, ["--threads", "1"], adapters=self.adapters) as server:
            body = {"model": "quiet", "prompt": PROMPTS[2], "temperature": 0.9, "seed": 5, "max_tokens": 16, "return_token_ids": True}
            request = urllib.request.Request(server.base_url + "/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                self.assertEqual(json.load(answer)["choices"][0]["token_ids"], ours[2])
        server.stop()

    def test_a_prompt_may_be_text_ids_or_a_dict(self):
        text = PROMPTS[3]
        ids = self.llm.tokenize(text)
        self.assertEqual(self.llm.detokenize(ids), text)
        same = self.ids([text, ids, {"prompt": text}, {"prompt_token_ids": ids}], GREEDY)
        self.assertEqual(same, same[:1] * 4)
        self.assertEqual(self.ids(text, GREEDY), same[:1])
        self.assertEqual(self.ids(ids, GREEDY), same[:1])
        output = self.llm.generate(text, GREEDY)[0]
        self.assertEqual((output.prompt, output.prompt_token_ids, output.finished), (text, ids, True))
        with self.raises(InvalidArgumentError, "multi_modal_data"):
            self.llm.generate({"prompt": text, "multi_modal_data": {}}, GREEDY)

    def test_parameters_may_be_one_for_all_or_one_each(self):
        lengths = [3, 4, 5, 6, 7]
        params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths]
        self.assertEqual([len(ids) for ids in self.ids(PROMPTS, params)], lengths)
        with self.raises(InvalidArgumentError, "sampling_params has 2 entries for 5 prompts"):
            self.llm.generate(PROMPTS, params[:2])

    def test_beams_give_the_best_answers_in_order(self):
        params = SamplingParams(use_beam_search=True, beam_width=4, n=3, max_tokens=6, ignore_eos=True, length_penalty=2.0, early_stopping="never")
        outputs = self.llm.generate("once", params, lora_request="loud")[0].outputs
        scores = [one.beam_score for one in outputs]
        self.assertEqual((len(outputs), scores), (3, sorted(scores, reverse=True)))
        for one in outputs:
            self.assertAlmostEqual(one.beam_score, one.cumulative_logprob / 36)
        with self.raises(InvalidArgumentError, "early_stopping must be True"):
            self.llm.generate("once", SamplingParams(use_beam_search=True, early_stopping="soon"))
        with self.raises(UnsupportedError, "presence_penalty"):
            self.llm.generate("once", SamplingParams(use_beam_search=True, presence_penalty=1.0))
        program = (
            "import sys, choral.compat.vllm, vllm\n"
            "from vllm.sampling_params import BeamSearchParams\n"
            "llm = vllm.LLM(sys.argv[1], threads=1)\n"
            "prompts = [{'prompt': 'once'}, {'prompt_token_ids': llm.get_tokenizer().encode('once')}]\n"
            "for found in llm.beam_search(prompts, BeamSearchParams(beam_width=3, max_tokens=5, ignore_eos=True)):\n"
            "    print([one.text for one in found.sequences], [len(one.tokens) for one in found.sequences])\n"
        )  # fmt: skip
        done = subprocess.run([sys.executable, "-c", program, self.model], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        own = self.llm.generate("once", SamplingParams(use_beam_search=True, n=3, max_tokens=5, ignore_eos=True))[0]
        counts = [len(own.prompt_token_ids) + 5] * 3
        told = [f"{[prompt + one.text for one in own.outputs]} {counts}" for prompt in ("once", self.llm.get_tokenizer().decode(own.prompt_token_ids))]
        self.assertEqual(done.stdout.splitlines(), told)

    def test_n_answers_each_with_its_index_and_seeds_repeat(self):
        params = SamplingParams(n=3, seed=11, max_tokens=6, ignore_eos=True)
        outputs = [self.llm.generate("once", params)[0].outputs for _ in range(2)]
        self.assertEqual([one.index for one in outputs[0]], [0, 1, 2])
        self.assertEqual([one.token_ids for one in outputs[0]], [one.token_ids for one in outputs[1]])
        self.assertEqual(len({tuple(one.token_ids) for one in outputs[0]}), 3)

    def test_stops_say_what_they_were(self):
        plain = self.llm.generate("once upon", SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))[0].outputs[0]
        self.assertEqual((plain.finish_reason, plain.stop_reason), ("length", None))
        by_id = self.llm.generate("once upon", SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[plain.token_ids[4]]))[0].outputs[0]
        self.assertEqual((by_id.finish_reason, by_id.stop_reason), ("stop", plain.token_ids[4]))

    def test_a_stop_string_of_digits_is_a_string(self):
        seven = self.llm.tokenize("7")
        for stop, stop_token_ids, reason in [("77", None, "77"), (["7"], seven, seven[0]), (["77"], [77], "77"), ("777", seven, seven[0])]:
            params = SamplingParams(temperature=0, max_tokens=9, allowed_token_ids=seven, stop=stop, stop_token_ids=stop_token_ids)
            one = self.llm.generate("once", params)[0].outputs[0]
            self.assertEqual((one.finish_reason, one.stop_reason), ("stop", reason))

    def test_an_answer_may_be_wanted_without_its_text(self):
        params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, logprobs=1, detokenize=False)
        one = self.llm.generate("once upon", params)[0].outputs[0]
        whole = self.llm.generate("once upon", SamplingParams(temperature=0, max_tokens=5, ignore_eos=True))[0].outputs[0]
        self.assertEqual((one.text, one.token_ids), ("", whole.token_ids))
        self.assertIsNone(one.logprobs[0][one.token_ids[0]].decoded_token)
        with self.raises(InvalidArgumentError, "stop_token_ids"):
            self.llm.generate("x", SamplingParams(stop="a", detokenize=False))

    def test_scores_are_those_of_the_server(self):
        texts = ["once upon", "a time there", "was"]
        ours = {
            "one against many": self.llm.score("once", texts, use_tqdm=False),
            "pairs": self.llm.score(texts, texts[::-1], lora_request="loud", use_tqdm=False),
        }
        import urllib.request
        with Server(self.model, ["--threads", "1"], adapters=self.adapters) as server:
            for name, body in {"one against many": {"text_1": "once", "text_2": texts}, "pairs": {"model": "loud", "text_1": texts, "text_2": texts[::-1]}}.items():
                request = urllib.request.Request(server.url + "/v1/score", json.dumps(body).encode(), {"Content-Type": "application/json"})
                with urllib.request.urlopen(request) as answer:
                    theirs = [one["score"] for one in json.load(answer)["data"]]
                np.testing.assert_allclose([one.outputs.score for one in ours[name]], theirs, rtol=0, atol=1e-12)
        self.assertEqual(ours["pairs"][0].prompt_token_ids, self.llm.tokenize(texts[0]) + self.llm.tokenize(texts[2]))
        for wrong, says in [
            (lambda: self.llm.score(texts, texts[:2]), "3 texts stand against 2"), (lambda: self.llm.score("a", []), "1 texts stand against 0"),
            (lambda: self.llm.score("a", "b", score_by="words"), "vectors"), (lambda: self.llm.score("a", "b", instruction="x"), "yes-no"),
            (lambda: self.llm.score("a", "b", score_by="yes-no"), "'yes' is 3 tokens"),
            (lambda: self.llm.score("a", "b", score_by="yes-no", truncate_prompt_tokens=3), "truncate_prompt_tokens"),
        ]:
            with self.raises(ChoralError, says):
                wrong()

    def test_log_probabilities_are_dicts_and_arrays(self):
        output = self.llm.generate("once upon", SamplingParams(temperature=0, max_tokens=5, logprobs=3, prompt_logprobs=2, ignore_eos=True))[0]
        logprobs = output.outputs[0].logprobs
        self.assertEqual(len(logprobs), 5)
        self.assertEqual((logprobs.token_ids.dtype, logprobs.top_logprobs.shape), (np.int32, (5, 3)))
        self.assertEqual(list(logprobs.token_ids), output.outputs[0].token_ids)
        for token, position in zip(output.outputs[0].token_ids, logprobs):
            self.assertEqual(position[token].rank, 1, "greedy takes the likeliest")
            self.assertEqual(position[token].decoded_token, self.llm.detokenize([token]) if token < 128 else position[token].decoded_token)
            self.assertLessEqual(sum(math.exp(one.logprob) for one in position.values()), 1.0001)
        self.assertAlmostEqual(float(logprobs.token_logprobs.sum()), output.outputs[0].cumulative_logprob, places=4)
        self.assertIsNone(output.prompt_logprobs[0], "nothing is before the first token")
        self.assertEqual(len(output.prompt_logprobs), len(output.prompt_token_ids))
        self.assertIn(output.prompt_token_ids[3], output.prompt_logprobs[3])
        self.assertEqual(output.prompt_logprobs[-1], output.prompt_logprobs[len(output.prompt_token_ids) - 1])

    def test_conversations(self):
        messages = [{"role": "user", "content": "who are you"}]
        text = self.llm.apply_chat_template(messages)
        self.assertEqual(text, "<user>who are you\n<assistant>")
        whole = self.llm.chat([messages, "who are you"], GREEDY, use_tqdm=False)
        self.assertEqual(whole[0].outputs[0].token_ids, whole[1].outputs[0].token_ids)
        self.assertEqual(whole[0].prompt_token_ids, self.llm.tokenize(text, add_special_tokens=False))
        tokenizer = self.llm.get_tokenizer()
        self.assertEqual(tokenizer.apply_chat_template(messages, add_generation_prompt=True), whole[0].prompt_token_ids)
        self.assertEqual(tokenizer.decode(tokenizer.encode("a base")), "a base")
        self.assertEqual(tokenizer(["a", "b"])["input_ids"], [[97], [98]])

    def test_embeddings_are_arrays_of_length_one(self):
        one, two = self.llm.embed(["once", "upon"], lora_request=[None, "loud"])
        self.assertEqual((one.outputs.embedding.dtype, one.outputs.embedding.shape), (np.float32, (64,)))
        self.assertAlmostEqual(float(np.linalg.norm(two.outputs.embedding)), 1, places=5)

    def test_a_head_of_classes_classifies_and_scores(self):
        pooled = pathlib.Path(__file__).resolve().parents[1] / "data/pooled"
        goldens = [json.loads(line) for line in (pooled / "goldens.jsonl").read_text().splitlines()]
        with choral.LLM(str(pooled / "classes"), adapters={"it": str(pooled / "classes/adapter")}, threads=2) as llm:
            for adapter in (None, "it"):
                wanted = [golden for golden in goldens if golden["model"] == "classes" and golden.get("adapter", False) == (adapter is not None)]
                got = llm.classify([{"prompt_token_ids": golden["prompt_token_ids"]} for golden in wanted], lora_request=adapter)
                for one, golden in zip(got, wanted):
                    powers = np.exp(golden["classes"])
                    np.testing.assert_allclose(one.outputs.probs, powers / powers.sum(), atol=1e-4)
                    self.assertEqual(one.outputs.label, ["bad", "so-so", "good"][int(np.argmax(powers))])
                    self.assertEqual(one.outputs.num_classes, 3)
            with self.raises(choral.errors.UnsupportedError, "gives no text"):
                llm.generate("once")
        with choral.LLM(str(pooled / "reranker"), threads=2) as llm:
            first, second = llm.score("once", ["upon", "a time"])
            ids = llm.tokenize("once") + llm.tokenize("a time", add_special_tokens=False)
            self.assertEqual(second.outputs.score, llm.classify({"prompt_token_ids": ids})[0].outputs.probs[0])
            self.assertNotEqual(first.outputs.score, second.outputs.score)
        with choral.LLM(str(pooled / "embedder"), threads=2) as llm:
            whole = llm.embed("once")[0].outputs.embedding
            cut = llm.embed("once", dimensions=4)[0].outputs.embedding
            np.testing.assert_allclose(cut, whole[:4] / np.linalg.norm(whole[:4]), rtol=1e-5)

    def test_what_is_of_the_wrong_type_is_named(self):
        greedy = SamplingParams(temperature=0, max_tokens=1)
        for prompts, says in [(None, "prompts: give a text"), (5, "not int"), ([None], "a prompt is a text"), ([[1.5]], "whole numbers"),
                              ([[2**40]], "whole numbers"), ("\ud800", "surrogate"), (b"x", "not bytes")]:
            with self.raises(InvalidArgumentError, says):
                self.llm.generate(prompts, greedy)
        for params, says in [("x", "sampling_params: give SamplingParams, or a list with one a prompt, not str"), (["x"], "sampling_params"),
                             (SamplingParams(max_tokens="5"), "max_tokens must be a whole number, or None, not '5'"),
                             (SamplingParams(temperature="hot"), "temperature must be of type float, not 'hot'"),
                             (SamplingParams(stop=[5]), "stop must be a list of texts"), (SamplingParams(seed="x"), "seed must be a number, or None"),
                             (SamplingParams(top_k=1.5), "top_k must be a whole number"), (SamplingParams(logit_bias={"a": "b"}), "logit_bias maps"),
                             (SamplingParams(stop_token_ids=["a"]), "stop_token_ids must be a list of token ids")]:
            with self.raises(InvalidArgumentError, says):
                self.llm.generate("x", params)
        for messages in (7, [7]):
            with self.raises(InvalidArgumentError, "messages"):
                self.llm.chat(messages, greedy)
        with self.raises(InvalidArgumentError, "give at least one"):
            self.llm.compare("x", [])
        self.assertEqual(self.llm.generate((prompt for prompt in PROMPTS[:2]), greedy)[1].prompt, PROMPTS[1])

    def test_structured_answers_keep_their_form_or_say_what_is_missing(self):
        params = SamplingParams(temperature=1, seed=1, max_tokens=40, structured_outputs=StructuredOutputsParams(json_object=True))
        text = self.llm.generate("once", params)[0].outputs[0].text
        self.assertTrue(text.lstrip().startswith("{"), text)
        with self.raises(InvalidArgumentError, "json and regex are given"):
            SamplingParams(structured_outputs=StructuredOutputsParams(json={}, regex="a")).structured_outputs.native()

    def test_what_is_wrong_is_an_exception_with_a_code(self):
        for wrong, kind, code, says in [
            (lambda: self.llm.generate("x", SamplingParams(temperature=-1)), ValueError, "invalid_argument", "temperature"),
            (lambda: self.llm.generate("x", GREEDY, lora_request="nobody"), LookupError, "not_found", "nobody"),
            (lambda: self.llm.generate("x" * 40_000, GREEDY), ChoralError, "invalid_argument", "32768"),
            (lambda: SamplingParams(extra_args={"mine": 1}), UnsupportedError, "unsupported", "mine"),
            (lambda: self.llm.generate("x", SamplingParams(max_tokens=0)), ValueError, "invalid_argument", "max_tokens"),
            (lambda: self.llm.generate("x", GREEDY, lora_request=7), ValueError, "invalid_argument", "mix"),
        ]:
            with self.raises(kind, says) as caught:
                wrong()
            self.assertEqual(caught.exception.code, code)
        self.assertEqual(len(self.ids(PROMPTS, GREEDY)), 5, "the engine goes on")


class Adapters(PackageTest):
    def setUp(self):
        self.llm = LLM(self.model, threads=2)
        self.addCleanup(self.llm.close)

    def say(self, adapter):
        return self.llm.generate("once upon", GREEDY, lora_request=adapter)[0].outputs[0].token_ids

    def test_an_adapter_in_memory_is_the_folder(self):
        folder = pathlib.Path(self.adapters["loud"])
        self.llm.load_adapter("folder", folder)
        state = read_safetensors(folder / "adapter_model.safetensors")
        config = json.loads((folder / "adapter_config.json").read_text())
        self.llm.load_adapter("memory", (state, config))
        self.assertEqual(self.say("memory"), self.say("folder"))
        self.assertNotEqual(self.say("memory"), self.say(None))
        infos = {info.name: info for info in self.llm.adapters()}
        self.assertEqual(infos["memory"].digest, infos["folder"].digest, "equal contents are one")
        self.assertEqual((infos["memory"].path, infos["memory"].rank, infos["memory"].state), ("", 4, "resident"))

    def test_names_are_replaced_pinned_and_unloaded(self):
        self.llm.load_adapter("a", self.adapters["loud"])
        with self.raises(AlreadyExistsError, "a"):
            self.llm.load_adapter("a", self.adapters["quiet"])
        loud = self.say("a")
        self.llm.load_adapter("a", self.adapters["quiet"], replace=True)
        self.assertNotEqual(self.say("a"), loud)
        self.llm.pin_adapter("a")
        self.assertTrue(self.llm.adapters()[0].pinned)
        self.llm.unload_adapter("a")
        self.assertEqual(self.llm.adapters(), [])
        with self.raises(NotFoundError, "'a'"):
            self.say("a")

    def test_a_lora_request_brings_its_path(self):
        first = self.say(LoRARequest("loud", 1, self.adapters["loud"]))
        self.assertEqual(self.say("loud"), first)
        with self.raises(InvalidArgumentError, "is loaded from"):
            self.say(LoRARequest("loud", 1, self.adapters["quiet"]))

    def test_a_heat_map_has_the_norms_of_the_products(self):
        folder = pathlib.Path(self.adapters["loud"])
        state = read_safetensors(folder / "adapter_model.safetensors")
        config = json.loads((folder / "adapter_config.json").read_text())
        whole = {name: config["lora_alpha"] / config["r"] * float(np.linalg.norm(state[f"base_model.model.{name}.lora_B.weight"]
                                                                                 @ state[f"base_model.model.{name}.lora_A.weight"]))
                 for name in {key.removeprefix("base_model.model.").rsplit(".lora_", 1)[0] for key in state}}
        self.llm.load_adapter("loud", folder)
        self.llm.load_adapter("memory", (state, config))
        for name in ("loud", "memory"):
            heatmap = self.llm.adapter(name).heatmap()
            self.assertEqual({row["module"] for row in heatmap}, set(whole))
            for row in heatmap:
                self.assertAlmostEqual(row["norm"], whole[row["module"]], delta=1e-5 * whole[row["module"]])
                self.assertEqual((row["kind"], row["rank"], row["scaling"]), ("LoRA", config["r"], config["lora_alpha"] / config["r"]))
                self.assertEqual(row["module"], f"model.layers.{row['layer']}.{row['part']}")
        picture = ElementTree.fromstring(heatmap._repr_svg_())
        squares = [one for one in picture.iter("{http://www.w3.org/2000/svg}rect") if one.get("class") == "heat"]
        self.assertEqual(len(squares), len(whole))
        self.assertEqual(max(float(one.get("opacity")) for one in squares), 1)
        self.assertIn("prefers-color-scheme: dark", heatmap._repr_html_())
        self.assertIn("█", str(heatmap))
        page = pathlib.Path(self.folder) / "heat.html"
        heatmap.to_html(page)
        self.assertNotIn("<script", page.read_text())
        self.assertEqual(self.llm.adapter("loud").info.rank, config["r"])
        with self.raises(NotFoundError, "'nobody'; loaded are: loud, memory"):
            self.llm.adapter("nobody")

    def test_a_heat_map_of_other_changes(self):
        """Experts of a layer are one square, whole weights have a frame, what lies outside the layers a column of its own."""
        def layer(module, norm, kind="LoRA"):
            return types.SimpleNamespace(module=module, kind=kind, rank=4 if norm is not None else 0, scaling=1.0, norm=norm)
        heatmap = choral.HeatMap("<x>", [layer(f"model.layers.1.mlp.experts.{i}.up_proj", 3.0) for i in range(4)]
                                 + [layer("model.layers.0.self_attn.q_proj", 0.0), layer("lm_head", None, "weight")])
        text = heatmap._repr_svg_()
        ElementTree.fromstring(text)
        self.assertIn("mlp.experts.*.up_proj, layer 1\n‖B·A‖ 6, LoRA, rank 4, 4 modules", text)
        self.assertIn("lm_head, outside the layers\nweight: replaced as a whole", text)
        self.assertIn("&lt;x&gt;: ‖B·A‖ by layer, at most 6", text)
        self.assertEqual([row["layer"] for row in heatmap], [1, 1, 1, 1, 0, None])
        ElementTree.fromstring(choral.HeatMap("none", [])._repr_svg_())

    def test_what_is_no_adapter_is_refused(self):
        with self.raises(InvalidArgumentError, "PeftModel"):
            self.llm.load_adapter("a", 7)
        with self.raises(NotFoundError, "nowhere"):
            self.llm.load_adapter("a", "/nowhere")
        with self.raises(InvalidArgumentError, "uint8"):
            self.llm.load_adapter("a", ({"x": np.zeros(3, np.uint8)}, {}))


class Comparisons(PackageTest):
    def test_rows_html_and_where_answers_part(self):
        with LLM(self.model, adapters=self.adapters, threads=2) as llm:
            made = llm.compare(["once", "<b>upon</b>"], ["base", "loud", {"loud": 0.5, "quiet": 0.5}, None], use_tqdm=False)
            self.assertEqual(made.adapters, ["base", "loud", "0.5·loud + 0.5·quiet", "base"])
            self.assertEqual(list(made)[1]["prompt"], "<b>upon</b>")
            base, loud, _, again = made.answers[0]
            self.assertIsNone(again.parts_at)
            self.assertEqual([token.token_id for token in again.tokens], [token.token_id for token in base.tokens])
            at = loud.parts_at
            self.assertNotEqual(loud.tokens[at].token_id, base.tokens[at].token_id)
            self.assertEqual([t.token_id for t in loud.tokens[:at]], [t.token_id for t in base.tokens[:at]])
            page = pathlib.Path(self.folder) / "page.html"
            made.to_html(page)
            text = page.read_text()
            self.assertNotIn("<b>upon", text, "texts are escaped")
            self.assertIn('class="token parts"', text)
            self.assertNotIn("<script", text)
            self.assertIn("parts at token", str(made))
            self.assertEqual(llm.compare("once", use_tqdm=False).adapters, ["base", "loud", "quiet"])


class Life(PackageTest):
    def test_arguments_of_vllm(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                LLM(self.model, threads=1, enable_lora=True, pipeline_parallel_size=1, gpu_memory_utilization=0.5, hf_overrides={"a": 1}).close()
        self.assertEqual([str(one.message) for one in caught], ["LLM: the argument hf_overrides is not known here and does nothing"])
        with self.raises(InvalidArgumentError, "pipeline_parallel_size=2"):
            LLM(self.model, pipeline_parallel_size=2)
        with self.raises(InvalidArgumentError, "max_num_seqs must be of type int"):
            LLM(self.model, max_num_seqs="many")
        with self.raises(NotFoundError, "--draft-model org/small"):
            LLM(self.model, speculative_config={"model": "org/small", "num_speculative_tokens": 3})
        with self.raises(InvalidArgumentError, "method 'eagle3' is not served"):
            LLM(self.model, speculative_config={"method": "eagle3", "model": "org/small"})
        with self.raises(InvalidArgumentError, "num_speculative_token is not known"):
            LLM(self.model, speculative_config={"method": "ngram", "num_speculative_token": 3})
        with self.raises(InvalidArgumentError, "--num-speculative-tokens 13: give 1 to 12"):
            LLM(self.model, speculative_config={"method": "ngram", "num_speculative_tokens": 13})
        with self.assertWarnsRegex(UserWarning, "prompt_lookup_max changes nothing here"):
            LLM(self.model, threads=1, speculative_config={"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}).close()
        with self.raises(NotFoundError, "nothing-here"):
            LLM("nothing-here")
        with self.raises(NotFoundError, "org/name@v2"):
            LLM("org/name", revision="v2")
        said = pathlib.Path(self.model) / "generation_config.json"
        self.addCleanup(said.unlink)
        said.write_text('{"temperature": 0.5, "top_k": 7}')
        with LLM(self.model, threads=1) as llm:
            stated = llm.get_default_sampling_params()
            self.assertEqual((stated.temperature, stated.top_k, stated.top_p, stated.max_tokens), (0.5, 7, 1.0, 16))

    def test_a_closed_engine_says_so(self):
        llm = LLM(self.model, threads=1)
        self.assertEqual(llm.model_info.architecture, "LlamaForCausalLM")
        self.assertGreaterEqual(llm.stats()["steps"], 0)
        llm.close()
        llm.close()
        with self.raises(UnavailableError, "closed"):
            llm.generate("x", GREEDY)

    def run_python(self, code, expect=0):
        """In a process of its own. It must say nothing of leaks at its end."""
        done = subprocess.run([sys.executable, "-c", code, str(self.model)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        self.assertNotIn("leaked", done.stderr)
        return done

    def test_a_fork_is_refused_and_hurts_nobody(self):
        done = self.run_python("""
import os, sys
from choral import LLM, SamplingParams, ChoralError
llm = LLM(sys.argv[1], threads=2)
child = os.fork()
if child == 0:
    try:
        llm.generate("x")
    except ChoralError as error:
        print(error.code, error)
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
print(len(llm.generate("x", SamplingParams(max_tokens=3, ignore_eos=True))[0].outputs[0].token_ids))
""")
        self.assertIn("unavailable this process was forked", done.stdout)
        self.assertTrue(done.stdout.endswith("3\n"), done.stdout)

    def test_ctrl_c_cancels_and_leaves_the_engine_usable(self):
        done = self.run_python("""
import os, signal, sys, threading, time
from choral import LLM, SamplingParams
llm = LLM(sys.argv[1], threads=1)
long = SamplingParams(temperature=0, max_tokens=20_000, ignore_eos=True)
def interrupt():
    while llm.stats()["generated_tokens"] == 0:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    llm.generate(["x"] * 2000, long, use_tqdm=False)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
while llm.stats()["running"] or llm.stats()["waiting"]:
    time.sleep(0.01)
print(len(llm.generate("x", SamplingParams(max_tokens=3, ignore_eos=True))[0].outputs[0].token_ids))
""")
        self.assertEqual(done.stdout, "interrupted\n3\n")

    def test_more_requests_than_the_queue_holds(self):
        with LLM(self.model, threads=2, max_waiting=4, max_num_seqs=2) as llm:
            outputs = llm.generate(["x"] * 40, SamplingParams(max_tokens=2, ignore_eos=True), use_tqdm=False)
            self.assertEqual([len(output.outputs[0].token_ids) for output in outputs], [2] * 40)

    def test_an_interpreter_may_end_with_engines_open(self):
        self.run_python("import sys; from choral import LLM; kept = LLM(sys.argv[1], threads=1); kept.generate('x')")


if __name__ == "__main__":
    package.main()
