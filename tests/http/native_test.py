#!/usr/bin/env python3
"""llama.cpp's own routes, by the description of its server: native_test.py CHORAL [unittest arguments]. Every answer and every event
has the fields that it must have and no others."""

import contextlib
import json
import math
import sys
import unittest

import served
import tiny_model

FILES = served.Files()
LONG_FILES = served.Files(context=4096)
SERVER = None


def setUpModule():
    global SERVER
    SERVER = served.Server(FILES.model, "--lora", f"one={FILES.root / 'one'}", "--lora", f"two={FILES.root / 'two'}")


def tearDownModule():
    code = SERVER.stop()
    assert code == 0, f"exit code {code}: {''.join(SERVER.said)}"


NUMBER = (int, float)
TIMINGS = {"cache_n": int, "prompt_n": int, "prompt_ms": NUMBER, "prompt_per_token_ms": NUMBER, "prompt_per_second": NUMBER,
           "predicted_n": int, "predicted_ms": NUMBER, "predicted_per_token_ms": NUMBER, "predicted_per_second": NUMBER}
RESULT = {"index": int, "content": str, "tokens": list, "id_slot": int, "stop": bool, "model": str, "tokens_predicted": int,
          "tokens_evaluated": int, "generation_settings": dict, "prompt": str, "has_new_line": bool, "truncated": bool, "stop_type": str,
          "stopping_word": str, "tokens_cached": int, "timings": dict}
PART = {"index": int, "content": str, "tokens": list, "stop": bool, "id_slot": int, "tokens_predicted": int, "tokens_evaluated": int}
TOKEN = {"id": int, "token": str, "bytes": list, "logprob": NUMBER}
SETTINGS = {"seed": int, "temperature": NUMBER, "top_k": int, "top_p": NUMBER, "min_p": NUMBER, "repeat_penalty": NUMBER,
            "presence_penalty": NUMBER, "frequency_penalty": NUMBER, "stop": list, "max_tokens": int, "n_predict": int, "ignore_eos": bool,
            "stream": bool, "logit_bias": list, "n_probs": int, "grammar": str, "samplers": list, "timings_per_token": bool, "lora": list}
GREEDY = {"temperature": 0, "n_predict": 12}
CHAT = [{"role": "user", "content": "Say something."}]


def events_of(server, path, **body):
    """The data of each event of a stream, which ends without OpenAI's mark."""
    with contextlib.closing(server.connection()) as connection:
        connection.request("POST", path, body=json.dumps({**body, "stream": True}), headers=served.JSON)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        assert "[DONE]" not in text
        return [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: ")]


class Shapes(unittest.TestCase):
    def check(self, got, wanted, **more):
        wanted = {**wanted, **more}
        self.assertEqual(sorted(got), sorted(wanted))
        for name, kind in wanted.items():
            self.assertIsInstance(got[name], kind, name)
            if kind is not bool:
                self.assertNotIsInstance(got[name], bool, name)

    def check_timings(self, got, evaluated, predicted):
        self.check(got, TIMINGS)
        self.assertEqual(got["cache_n"] + got["prompt_n"], evaluated)
        self.assertEqual(got["predicted_n"], predicted)
        for name, value in got.items():
            self.assertTrue(math.isfinite(value) and value >= 0, name)
        if predicted > 1:
            self.assertAlmostEqual(got["predicted_per_token_ms"] * predicted, got["predicted_ms"], delta=0.01)

    def check_result(self, got, **more):
        self.check(got, RESULT, **more)
        self.assertIs(got["stop"], True)
        self.assertIn(got["stop_type"], ("eos", "limit", "word"))
        self.assertEqual(bool(got["stopping_word"]), got["stop_type"] == "word")
        self.check_timings(got["timings"], got["tokens_evaluated"], got["tokens_predicted"])
        self.assertEqual(got["timings"]["cache_n"], got["tokens_cached"])
        for name, kind in SETTINGS.items():
            self.assertIsInstance(got["generation_settings"][name], kind, name)

    def check_probabilities(self, positions, count, beside):
        self.assertEqual(len(positions), count)
        for position in positions:
            self.check(position, TOKEN, top_logprobs=list)
            self.assertEqual(len(position["top_logprobs"]), beside)
            for token in [position, *position["top_logprobs"]]:
                self.check({k: v for k, v in token.items() if k != "top_logprobs"}, TOKEN)
                self.assertLessEqual(token["logprob"], 0)
            values = [token["logprob"] for token in position["top_logprobs"]]
            self.assertEqual(values, sorted(values, reverse=True))

    def refused(self, path, body, param, says=""):
        status, _, answer = SERVER.call("POST", path, body)
        self.assertEqual((status, answer["error"]["param"]), (400, param), answer)
        self.assertIn(says, answer["error"]["message"])


class CompletionTest(Shapes):
    def test_an_answer_is_that_of_openais_route(self):
        wanted = SERVER.post("/v1/completions", prompt="Hello", temperature=0, max_tokens=12, return_token_ids=True)["choices"][0]
        for path in ("/completion", "/completions"):
            got = SERVER.post(path, prompt="Hello", return_tokens=True, **GREEDY)
            self.check_result(got)
            self.assertEqual((got["content"], got["tokens"]), (wanted["text"], wanted["token_ids"]))
            self.assertEqual((got["tokens_predicted"], got["tokens_evaluated"], got["prompt"]), (12, 5, "Hello"))
            self.assertEqual((got["stop_type"], got["truncated"], got["model"]), ("limit", False, "tiny"))
            self.assertEqual(got["has_new_line"], "\n" in got["content"])
            self.assertEqual((got["generation_settings"]["n_predict"], got["generation_settings"]["temperature"]), (12, 0))
        self.assertEqual(SERVER.post("/completion", prompt="Hello", **GREEDY)["tokens"], [])

    def test_a_stream_says_what_the_answer_says(self):
        for more in ({}, {"n_probs": 3}, {"timings_per_token": True}):
            body = {"prompt": "Hello", "seed": 5, "n_predict": 20, **more}
            whole = SERVER.post("/completion", return_tokens=True, **body)
            *parts, last = events_of(SERVER, "/completion", **body)
            fields = {"completion_probabilities": list} if "n_probs" in more else {"timings": dict} if more else {}
            made = 0
            for part in parts:
                self.check(part, PART, **fields)
                self.assertIs(part["stop"], False)
                made += len(part["tokens"])
                self.assertEqual((part["tokens_predicted"], part["tokens_evaluated"]), (made, 5))
                if "timings" in part:
                    self.check_timings(part["timings"], 5, made)
            self.check_result(last)
            self.assertEqual((last["content"], last["tokens"]), ("", []))
            self.assertEqual("".join(part["content"] for part in parts), whole["content"])
            self.assertEqual([t for part in parts for t in part["tokens"]], whole["tokens"])
            for name in ("tokens_predicted", "tokens_evaluated", "stop_type", "has_new_line", "prompt", "truncated"):
                self.assertEqual(last[name], whole[name], name)
            if "n_probs" in more:
                self.check_result(whole, completion_probabilities=list)
                self.assertEqual([p for part in parts for p in part["completion_probabilities"]], whole["completion_probabilities"])

    def test_probabilities_are_those_of_openais_route(self):
        got = SERVER.post("/completion", prompt="Hello", n_probs=4, **GREEDY)["completion_probabilities"]
        self.check_probabilities(got, 12, 4)
        chosen = SERVER.post("/v1/completions", prompt="Hello", logprobs=4, temperature=0, max_tokens=12)["choices"][0]["logprobs"]
        self.assertEqual([position["logprob"] for position in got], chosen["token_logprobs"])
        self.assertEqual([position["id"] for position in got], [position["top_logprobs"][0]["id"] for position in got], "greedy")

    def test_every_form_of_prompt(self):
        hello, ids = "Hello", [72, 101, 108, 108, 111]
        one = SERVER.post("/completion", prompt=hello, **GREEDY)
        for prompt in (ids, [72, "ell", 111], ["Hello"], [ids], {"prompt_string": hello}, {"prompt_string": hello, "multimodal_data": []}):
            got = SERVER.post("/completion", prompt=prompt, **GREEDY)
            self.check_result(got)
            self.assertEqual((got["content"], got["prompt"]), (one["content"], hello), prompt)
        for prompt in ([hello, hello], [hello, ids], [[72, "ello"], {"prompt_string": hello}]):
            got = SERVER.post("/completion", prompt=prompt, **GREEDY)
            self.assertEqual([result["index"] for result in got], [0, 1])
            for result in got:
                self.check_result(result)
                self.assertEqual(result["content"], one["content"])
        got = SERVER.post("/completion", prompt=["Hello", "Bye"], n_cmpl=2, seed=3, n_predict=4)
        self.assertEqual([(result["index"], result["prompt"]) for result in got], [(0, "Hello"), (1, "Hello"), (2, "Bye"), (3, "Bye")])
        last = [event for event in events_of(SERVER, "/completion", prompt=["Hello", "Bye"], n_cmpl=2, seed=3, n_predict=4) if event["stop"]]
        self.assertEqual(sorted(event["index"] for event in last), [0, 1, 2, 3])
        for bad in ([], {}, [None], [[]], 7, [1.5], [1, None], {"prompt_string": 1}, [["a", {}]]):
            self.refused("/completion", {"prompt": bad}, "prompt")
        self.refused("/completion", {"prompt": {"prompt_string": "x", "multimodal_data": ["AAAA"]}}, "prompt", "multimodal_data")
        self.refused("/completion", {}, "prompt", "missing")

    def test_how_an_answer_ends(self):
        text = SERVER.post("/completion", prompt="Hello", **GREEDY)["content"]
        word = text[3:5]
        got = SERVER.post("/completion", prompt="Hello", stop=[word], **GREEDY)
        self.assertEqual((got["stop_type"], got["stopping_word"], got["content"]), ("word", word, text[:text.index(word)]))
        ended = SERVER.post("/completion", prompt="Hello", logit_bias=[[tiny_model.EOS, 100]], n_predict=9, temperature=0)
        self.assertEqual((ended["stop_type"], ended["content"], ended["stopping_word"]), ("eos", "", ""))
        for n_predict in (-1, -2):
            whole = SERVER.post("/completion", prompt="Hello", n_predict=n_predict, ignore_eos=True, temperature=0)
            self.assertEqual((whole["stop_type"], whole["truncated"], whole["tokens_predicted"]), ("limit", True, tiny_model.CONTEXT - 5))
            self.assertEqual(whole["generation_settings"]["n_predict"], -1)
        usual = SERVER.post("/completion", prompt="Hello", ignore_eos=True, temperature=0)
        self.assertEqual(usual["tokens_predicted"], tiny_model.CONTEXT - 5, "without n_predict to the end")
        none = SERVER.post("/completion", prompt="Hello", n_predict=0, n_probs=2, return_tokens=True)
        self.check_result(none)
        self.assertEqual((none["content"], none["tokens"], none["tokens_predicted"], none["stop_type"]), ("", [], 0, "limit"))
        (last,) = events_of(SERVER, "/completion", prompt="Hello", n_predict=0)
        self.check_result(last)
        self.assertEqual(last["tokens_predicted"], 0)

    def test_biases_in_every_form(self):
        usual = SERVER.post("/completion", prompt="Hello", n_predict=1, temperature=0, return_tokens=True)["tokens"][0]
        for bias in ([[usual, False]], [[usual, -100]], {str(usual): -100}, {str(usual): False}):
            got = SERVER.post("/completion", prompt="Hello", n_predict=1, temperature=0, return_tokens=True, logit_bias=bias)
            self.assertNotEqual(got["tokens"], [usual], bias)
        for bias in ([["Z", 100]], {"Z": 100}, [["ZZ", 100]]):
            self.assertEqual(SERVER.post("/completion", prompt="Hello", n_predict=3, temperature=0, logit_bias=bias)["content"], "ZZZ")
        for bad in (7, [7], [[1]], [[1, "x"]], [[1.5, 1]], [[1, 2, 3]], [[None, 1]]):
            self.refused("/completion", {"prompt": "x", "logit_bias": bad}, "logit_bias")

    def test_the_fields_that_were_asked_for(self):
        got = SERVER.post("/completion", prompt="Hello", response_fields=["content", "generation_settings/n_predict", "timings/prompt_n", "no/such"],
                          **GREEDY)
        self.assertEqual(sorted(got), ["content", "generation_settings/n_predict", "timings/prompt_n"])
        self.assertEqual(got["generation_settings/n_predict"], 12)
        got = SERVER.post("/completion", prompt="Hello", n_probs=1, response_fields=["completion_probabilities"], **GREEDY)
        self.assertEqual(sorted(got), ["completion_probabilities"])
        self.assertEqual(sorted(SERVER.post("/completion", prompt="Hello", n_probs=1, response_fields=["content"], **GREEDY)), ["content"])
        self.assertEqual(events_of(SERVER, "/completion", prompt="Hello", response_fields=["stop"], **GREEDY)[-1], {"stop": True})

    def test_adapters_by_number_and_name(self):
        listed = {entry["path"]: entry["id"] for entry in SERVER.call("GET", "/lora-adapters")[2]}
        base = SERVER.post("/completion", prompt="Hello", **GREEDY)["content"]
        for name, number in listed.items():
            wanted = SERVER.post("/v1/completions", model=name, prompt="Hello", temperature=0, max_tokens=12)["choices"][0]["text"]
            got = SERVER.post("/completion", prompt="Hello", lora=[{"id": number, "scale": 1.0}], **GREEDY)
            self.assertEqual(got["content"], wanted)
            self.assertNotEqual(got["content"], base)
            self.assertEqual(got["generation_settings"]["lora"], [{"id": number, "name": name, "scale": 1.0}])
            self.assertEqual([adapter["name"] for adapter in got["adapters"]], [name])
            self.assertEqual(SERVER.post("/completion", prompt="Hello", model=name, **GREEDY)["content"], wanted)
            last = events_of(SERVER, "/completion", prompt="Hello", lora=[{"id": number}], **GREEDY)[-1]
            self.assertEqual([adapter["name"] for adapter in last["adapters"]], [name])
        self.refused("/completion", {"prompt": "x", "lora": [{"id": 99}]}, "lora", "/lora-adapters")
        self.assertEqual(SERVER.call("POST", "/completion", {"prompt": "x", "model": "nobody"})[0], 404)
        self.assertEqual(SERVER.call("POST", "/completion", {"prompt": [1, "x"], "model": "nobody"})[0], 404)

    def test_an_answer_of_a_form(self):
        got = SERVER.post("/completion", prompt="Hello", json_schema={"const": "42"}, n_predict=20, temperature=0)
        self.assertEqual((got["content"], got["stop_type"]), ('"42"', "eos"))

    def test_a_stream_may_begin_with_how_its_prompt_was_computed(self):
        progress = {"total": int, "cache": int, "processed": int, "time_ms": NUMBER}
        first, *rest = events_of(SERVER, "/completion", prompt="Hello", return_progress=True, **GREEDY)
        self.check(first, PART, prompt_progress=dict)
        self.check(first["prompt_progress"], progress)
        self.assertEqual((first["content"], first["tokens_predicted"], first["prompt_progress"]["processed"]), ("", 0, 5))
        self.assertFalse(any("prompt_progress" in event for event in rest))
        for path, body in (("/v1/completions", {"prompt": "Hello"}), ("/v1/chat/completions", {"messages": CHAT})):
            chunks = SERVER.stream(path, return_progress=True, temperature=0, max_tokens=5, **body)
            self.check(chunks[0]["prompt_progress"], progress)
            self.assertFalse(any("prompt_progress" in chunk for chunk in chunks[1:]))
            self.assertNotIn("prompt_progress", SERVER.post(path, return_progress=True, max_tokens=1, **body))

    def test_what_is_not_served_is_refused_by_name(self):
        for field, value in (("post_sampling_probs", True), ("n_indent", 2), ("t_max_predict_ms", 10),
                             ("image_data", [1]), ("prompt_logprobs", 1), ("echo", True), ("grammar_lazy", True)):
            self.refused("/completion", {"prompt": "x", "n_predict": 1, field: value}, field, field)
        for field, value in (("cache_prompt", False), ("id_slot", 3), ("n_keep", 5), ("n_discard", 1), ("n_cache_reuse", 1),
                             ("return_progress", False), ("post_sampling_probs", False), ("sse_ping_interval", 5)):
            status, headers, _ = SERVER.call("POST", "/completion", {"prompt": "x", "n_predict": 1, field: value})
            self.assertEqual((status, headers["X-Choral-Warnings"]), (200, None), field)
        for field, value in (("cache_prompt", "x"), ("id_slot", "x"), ("n_probs", -1), ("n_probs", 101), ("response_fields", "x"),
                             ("return_tokens", 1), ("stream", "x"), ("n_predict", 1.5), ("timings_per_token", "x")):
            status, _, answer = SERVER.call("POST", "/completion", {"prompt": "x", field: value})
            self.assertEqual(status, 400, field)
            self.assertIn(field if value != 101 else "logprobs", answer["error"]["message"])


class TimingsTest(Shapes):
    def test_openais_routes_have_them_when_asked(self):
        for path, body in (("/v1/completions", {"prompt": "Hello"}), ("/v1/chat/completions", {"messages": CHAT})):
            for asked in (False, True):
                more = {"timings_per_token": True} if asked else {}
                whole = SERVER.post(path, max_tokens=5, temperature=0, **body, **more)
                self.assertEqual("timings" in whole, asked)
                chunks = SERVER.stream(path, max_tokens=5, temperature=0, stream_options={"include_usage": True}, **body, **more)
                said = [chunk["timings"] for chunk in chunks if "timings" in chunk]
                if not asked:
                    self.assertEqual(said, [])
                    continue
                self.check_timings(whole["timings"], whole["usage"]["prompt_tokens"], 5)
                self.assertIn("timings", chunks[-1])
                self.check_timings(said[-1], whole["usage"]["prompt_tokens"], 5)
                if "messages" in body:
                    self.assertNotIn("timings", chunks[0], "it only says who speaks")
                made = [one["predicted_n"] for one in said]
                self.assertEqual(made, sorted(made))
        two = SERVER.post("/v1/completions", prompt=["Hello", "Bye"], max_tokens=5, timings_per_token=True)
        self.check_timings(two["timings"], 8, two["usage"]["completion_tokens"])


class TextTest(Shapes):
    def test_tokens_in_both_forms(self):
        text = "Hé <s>"
        ids = SERVER.post("/tokenize", content=text)
        self.assertEqual(ids, {"tokens": [72, 0xC3, 0xA9, 32, tiny_model.BOS]})
        plain = SERVER.post("/tokenize", content=text, parse_special=False)["tokens"]
        self.assertEqual(plain, list(text.encode()))
        pieces = SERVER.post("/tokenize", content=text, with_pieces=True)
        self.assertEqual(pieces, {"tokens": [{"id": 72, "piece": "H"}, {"id": 0xC3, "piece": [0xC3]}, {"id": 0xA9, "piece": [0xA9]},
                                             {"id": 32, "piece": " "}, {"id": tiny_model.BOS, "piece": "<s>"}]})
        self.assertEqual(SERVER.post("/tokenize", content=[1, "Hi", 2, "x", "y"])["tokens"], [1, 72, 105, 2, 120, 121])
        self.assertEqual(SERVER.post("/tokenize", content="")["tokens"], [])
        got = SERVER.post("/tokenize", prompt=text)
        self.check(got, {"count": int, "max_model_len": int, "tokens": list})
        self.assertEqual(SERVER.post("/detokenize", tokens=ids["tokens"]), {"content": text, "prompt": text})
        for bad, param in (({"content": 7}, "content"), ({"content": [1.5]}, "content"), ({"prompt": "x", "with_pieces": True}, "with_pieces"),
                           ({"content": "x", "prompt": "y"}, "prompt"), ({"content": "x", "return_token_strs": True}, "return_token_strs"),
                           ({"messages": CHAT, "add_special": True}, "add_special"), ({}, None)):
            self.refused("/tokenize", bad, param)

    def test_the_text_of_a_conversation(self):
        got = SERVER.post("/apply-template", messages=CHAT)
        self.assertEqual(got, {"prompt": "<user>Say something.\n<assistant>"})
        begun = [*CHAT, {"role": "assistant", "content": "It is"}]
        self.assertEqual(SERVER.post("/apply-template", messages=begun, continue_final_message=True)["prompt"],
                         "<user>Say something.\n<assistant>It is")
        whole = SERVER.post("/completion", prompt=got["prompt"], **GREEDY)["content"]
        chat = SERVER.post("/v1/chat/completions", messages=CHAT, temperature=0, max_tokens=12)["choices"][0]["message"]["content"]
        self.assertEqual(whole, chat)
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
        self.assertIn("weather", SERVER.post("/apply-template", messages=CHAT, tools=tools, tool_choice="required")["prompt"])
        self.refused("/apply-template", {}, "messages")
        self.refused("/apply-template", {"messages": []}, "messages")

    def test_vectors(self):
        wanted = [entry["embedding"] for entry in SERVER.post("/v1/embeddings", input=["Hello", "Bye"])["data"]]
        for path in ("/embedding", "/embeddings"):
            self.assertEqual(SERVER.post(path, content="Hello"), [{"index": 0, "embedding": [wanted[0]]}])
            self.assertEqual(SERVER.post(path, input=["Hello", [66, "ye"]]),
                             [{"index": 0, "embedding": [wanted[0]]}, {"index": 1, "embedding": [wanted[1]]}])
        for norm, size in ((0, lambda v: max(map(abs, v)) / 32760), (1, lambda v: sum(map(abs, v))), (2, lambda v: math.hypot(*v)),
                           (3, lambda v: sum(abs(x)**3 for x in v)**(1 / 3))):
            (vector,) = SERVER.post("/embedding", content="Hello", embd_normalize=norm)[0]["embedding"]
            self.assertAlmostEqual(size(vector), 1, places=3, msg=norm)
            self.assertGreater(sum(a * b for a, b in zip(vector, wanted[0])) / math.hypot(*vector), 0.999)
        for body, param in (({"content": "x", "embd_normalize": -1}, "embd_normalize"), ({"content": "x", "embd_normalize": 99}, "embd_normalize"),
                            ({"content": "x", "dimensions": 4}, "dimensions"), ({}, "content"), ({"content": []}, "content")):
            self.refused("/embedding", body, param)


class ServerTest(Shapes):
    def test_what_the_server_says_of_itself(self):
        props = SERVER.call("GET", "/props")[2]
        self.check(props, {"default_generation_settings": dict, "total_slots": int, "model_alias": str, "model_path": str, "modalities": dict,
                           "chat_template": str, "bos_token": str, "eos_token": str, "build_info": str, "is_sleeping": bool})
        self.assertEqual((props["chat_template"], props["bos_token"], props["eos_token"]), (tiny_model.TEMPLATE, "<s>", "</s>"))
        usual = props["default_generation_settings"]
        self.check(usual, {"id": int, "n_ctx": int, "speculative": bool, "is_processing": bool, "params": dict})
        self.assertEqual((usual["n_ctx"], usual["params"]["n_predict"]), (tiny_model.CONTEXT, -1))
        told = SERVER.post("/completion", prompt="x", n_predict=1)["generation_settings"]
        self.assertEqual(sorted(usual["params"]), sorted(told))
        self.assertNotIn(str(FILES.folder), json.dumps(props))
        self.assertEqual(SERVER.call("POST", "/props", {})[0], 405)
        info = SERVER.call("GET", "/server_info")[2]
        self.check(info, {"version": str, "served_model_names": list, "system_fingerprint": str, "max_num_seqs": int, "model": dict,
                          "vllm_config": dict})
        self.assertNotIn(str(FILES.folder), json.dumps(info))
        self.assertEqual(sorted(SERVER.call("GET", "/load")[2]), ["server_load"])

    def test_slots_are_busy_as_answers_are_made(self):
        server = served.Server(LONG_FILES.model, "--max-num-seqs", "2")
        self.addCleanup(server.stop)
        for slot in server.call("GET", "/slots")[2]:
            self.check(slot, {"id": int, "n_ctx": int, "speculative": bool, "is_processing": bool})
        self.assertEqual([s["is_processing"] for s in server.call("GET", "/slots")[2]], [False, False])
        self.assertEqual(server.call("GET", "/slots?fail_on_no_slot=1")[0], 200)
        self.assertEqual(server.call("GET", "/load")[2], {"server_load": 0})
        with contextlib.closing(server.connection()) as connection:
            body = {"prompt": "x", "n_cmpl": 3, "ignore_eos": True, "stream": True}
            connection.request("POST", "/completion", body=json.dumps(body), headers=served.JSON)
            connection.getresponse().readline()
            self.assertEqual([s["is_processing"] for s in server.call("GET", "/slots")[2]], [True, True])
            status, _, answer = server.call("GET", "/slots?fail_on_no_slot=1")
            self.assertEqual((status, answer["error"]["code"]), (503, "unavailable"))
            self.assertEqual(server.call("GET", "/load")[2], {"server_load": 3})


class GapTest(Shapes):
    @classmethod
    def setUpClass(cls):
        cls.files = served.Files()
        tiny_model.write_model(cls.files.model, context=1024, fills_gaps=True)
        cls.server = served.Server(cls.files.model)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_a_gap_is_asked_for_as_the_model_was_trained(self):
        pre, suf, mid, pad, rep, sep = tiny_model.FILL_IDS
        gap = {"input_prefix": "int a = ", "input_suffix": ";\n"}
        plain = [pre, *b"int a = ", suf, *b";\n", mid]
        extra = [{"filename": "x.h", "text": "int f();\n"}, {"text": "no name"}]
        repository = [rep, *b"myproject\n", sep, *b"x.h\n", *b"int f();\n", sep, *b"tmp\n", *b"no name", sep, *b"filename\n"]
        for body, wanted in ((gap, plain), ({**gap, "prompt": "f"}, [*plain, *b"f"]), ({**gap, "input_extra": extra}, [*repository, *plain]),
                             ({**gap, "input_prefix": "<fim_middle>"}, [pre, *b"<fim_middle>", suf, *b";\n", mid])):
            got = self.server.post("/infill", **GREEDY, return_tokens=True, **body)
            self.check_result(got)
            self.assertEqual(got["tokens_evaluated"], len(wanted))
            same = self.server.post("/completion", prompt=wanted, return_tokens=True, stop_token_ids=[pad, rep, sep], **GREEDY)
            self.assertEqual((got["content"], got["tokens"], got["prompt"]), (same["content"], same["tokens"], same["prompt"]))
            *parts, last = events_of(self.server, "/infill", **GREEDY, **body)
            self.check_result(last)
            self.assertEqual("".join(part["content"] for part in parts), got["content"])

    def test_openais_suffix(self):
        got = self.server.post("/v1/completions", prompt="int a = ", suffix=";\n", temperature=0, max_tokens=12)
        self.assertEqual(got["choices"][0]["text"], self.server.post("/infill", input_prefix="int a = ", input_suffix=";\n", **GREEDY)["content"])
        same = self.server.post("/v1/completions", prompt=[[*b"int a = "], "int a = "], suffix=";\n", temperature=0, max_tokens=12)
        self.assertEqual([choice["text"] for choice in same["choices"]], [got["choices"][0]["text"]] * 2)
        for more in ({"echo": True}, {"prompt_logprobs": 1}, {"truncate_prompt_tokens": 4}):
            status, _, answer = self.server.call("POST", "/v1/completions", {"prompt": "x", "suffix": "y", **more})
            self.assertEqual((status, answer["error"]["param"]), (400, "suffix"))
        self.assertEqual(self.server.call("POST", "/v1/completions", {"prompt": "x", "suffix": "", "max_tokens": 1})[0], 200)

    def test_editors_are_told_what_has_no_effect(self):
        body = {"input_prefix": "a", "input_suffix": "b", "n_predict": 2, "cache_prompt": True, "stream": False, "top_k": 40, "top_p": 0.99}
        bounds = {"n_indent": 4, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "samplers": ["top_k", "top_p", "infill"]}
        status, headers, _ = self.server.call("POST", "/infill", {**body, **bounds, "response_fields": ["content", "timings/prompt_n"]})
        warnings = headers.get_all("X-Choral-Warnings")
        self.assertEqual((status, len(warnings)), (200, 4))
        for name in bounds:
            self.assertTrue(any(name in warning for warning in warnings), name)
        status, headers, _ = self.server.call("POST", "/infill", {**body, **dict.fromkeys(("n_indent", "t_max_prompt_ms", "t_max_predict_ms"), 0)})
        self.assertEqual((status, headers["X-Choral-Warnings"]), (200, None))
        self.assertEqual(self.server.call("POST", "/infill", {**body, "samplers": 7})[0], 400)

    def test_another_file_ends_the_answer(self):
        sep = tiny_model.FILL_IDS[5]
        got = self.server.post("/infill", input_prefix="a", input_suffix="b", logit_bias=[[sep, 100]], n_predict=9, temperature=0)
        self.assertEqual((got["stop_type"], got["content"]), ("eos", ""))

    def test_what_is_wrong(self):
        for body, param in (({"input_prefix": "x"}, "input_suffix"), ({"input_suffix": "x"}, "input_prefix"),
                            ({"input_prefix": 1, "input_suffix": ""}, "input_prefix")):
            status, _, answer = self.server.call("POST", "/infill", body)
            self.assertEqual((status, answer["error"]["param"]), (400, param))
        for extra in ({}, [{}], [{"filename": "ok"}], [{"filename": 123, "text": "x"}], [{"filename": "x", "text": 1}], [7]):
            status, _, answer = self.server.call("POST", "/infill", {"input_prefix": "", "input_suffix": "", "input_extra": extra})
            self.assertEqual((status, answer["error"]["param"]), (400, "input_extra"), extra)
        long = self.server.call("POST", "/infill", {"input_prefix": "x" * 2000, "input_suffix": ""})
        self.assertEqual((long[0], long[2]["error"]["code"]), (400, "context_length_exceeded"))

    def test_a_model_without_such_tokens_says_so(self):
        self.refused("/infill", {"input_prefix": "a", "input_suffix": "b"}, "input_prefix", "fills no gaps")
        self.refused("/v1/completions", {"prompt": "a", "suffix": "b"}, "suffix", "fills no gaps")


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
