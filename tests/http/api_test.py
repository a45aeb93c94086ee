#!/usr/bin/env python3
"""OpenAI's endpoints: api_test.py CHORAL [unittest arguments]."""

import json
import socket
import subprocess
import sys
import threading
import unittest

import served

FILES = served.Files()
SERVER = None


def setUpModule():
    global SERVER
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root, "--lora", f"one={FILES.root / 'one'}",
                           "--lora", f"two={FILES.root / 'two'}")


def tearDownModule():
    code = SERVER.stop()
    assert code == 0, f"exit code {code}: {''.join(SERVER.said)}"


GREEDY = {"temperature": 0, "max_tokens": 12}
CHAT = [{"role": "user", "content": "Say something."}]


class CompletionsTest(unittest.TestCase):
    def test_an_answer_is_what_the_program_gives(self):
        for adapter in ("", "one", "two"):
            flags = ["--adapter-root", str(FILES.root), "--adapter", adapter] if adapter else []
            alone = subprocess.run([served.CHORAL, "generate", str(FILES.model), "-p", "Hello", "--temperature", "0", "--max-tokens",
                                    "12", "--json", "-q", *flags], capture_output=True, text=True, check=True, timeout=served.LONG)
            wanted = json.loads(alone.stdout)
            got = SERVER.post("/v1/completions", model=adapter or "tiny", prompt="Hello", return_token_ids=True, **GREEDY)
            self.assertEqual(got["choices"][0]["token_ids"], wanted["token_ids"], adapter)
            self.assertEqual(got["choices"][0]["text"], wanted["text"])
            self.assertEqual(got["choices"][0]["finish_reason"], "length")
            self.assertEqual(got["usage"]["completion_tokens"], 12)
            self.assertEqual(got["usage"]["total_tokens"], got["usage"]["prompt_tokens"] + 12)

    def test_a_stream_says_what_the_answer_says(self):
        for n in (1, 3):
            body = {"model": "one", "prompt": ["Hello", "What is it?"], "n": n, "seed": 5, "max_tokens": 20, "logprobs": 2}
            whole = SERVER.post("/v1/completions", **body)
            chunks = SERVER.stream("/v1/completions", stream_options={"include_usage": True}, **body)
            self.assertEqual(len(whole["choices"]), 2 * n)
            self.assertEqual(chunks[-1]["choices"], [])
            self.assertEqual(chunks[-1]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
            for choice in whole["choices"]:
                parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
                self.assertEqual("".join(part["text"] for part in parts), choice["text"])
                self.assertEqual(parts[-1]["finish_reason"], choice["finish_reason"])
                for key, values in choice["logprobs"].items():
                    self.assertEqual([v for part in parts for v in part["logprobs"][key]], values, key)

    def test_echo_gives_the_prompt_and_its_log_probabilities(self):
        for prompt in ("Hello you", [72, 101, 108, 108, 111]):
            body = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
            choice = SERVER.post("/v1/completions", **body)["choices"][0]
            text = prompt if isinstance(prompt, str) else "Hello"
            self.assertTrue(choice["text"].startswith(text))
            logprobs = choice["logprobs"]
            self.assertIsNone(logprobs["token_logprobs"][0])
            self.assertIsNone(logprobs["top_logprobs"][0])
            self.assertEqual(len(logprobs["tokens"]), len(text) + 1)
            self.assertEqual(logprobs["text_offset"][:len(text)], list(range(len(text))))
            self.assertTrue(all(value <= 0 for value in logprobs["token_logprobs"][1:]))
            streamed = [c for chunk in SERVER.stream("/v1/completions", **body) for c in chunk["choices"]]
            self.assertEqual("".join(c["text"] for c in streamed), choice["text"])
            for key in logprobs:
                self.assertEqual([v for c in streamed for v in c["logprobs"][key]], logprobs[key], key)
        alone = SERVER.post("/v1/completions", prompt="Hello", echo=True, max_tokens=0)
        self.assertEqual((alone["choices"][0]["text"], alone["usage"]["completion_tokens"]), ("Hello", 0))

    def test_what_is_asked_of_the_prompt_comes_whole_and_in_streams(self):
        body = {"prompt": ["Hello", [72, 105]], "n": 2, "max_tokens": 3, "seed": 1, "logprobs": 1, "prompt_logprobs": 2, "return_token_ids": True}
        ids = [[72, 101, 108, 108, 111], [72, 105]]
        for echo in (False, True):
            whole = SERVER.post("/v1/completions", echo=echo, **body)["choices"]
            chunks = SERVER.stream("/v1/completions", echo=echo, **body)
            for choice in whole:
                prompt = ids[choice["index"] // 2]
                self.assertEqual(choice["prompt_token_ids"], prompt)
                self.assertEqual(len(choice["prompt_logprobs"]), len(prompt))
                parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
                self.assertEqual([p["prompt_token_ids"] for p in parts if "prompt_token_ids" in p], [prompt])
                self.assertIn("prompt_token_ids", parts[0])
                told = [p["prompt_logprobs"] for p in parts if "prompt_logprobs" in p]
                self.assertEqual(told, [choice["prompt_logprobs"]] if choice["index"] % 2 == 0 else [], "once a prompt")
                for position, token in zip(choice["prompt_logprobs"][1:], prompt[1:]):
                    ranks = sorted(entry["rank"] for entry in position.values())
                    self.assertEqual(ranks[:2], [1, 2])
                    self.assertGreaterEqual(position[str(token)]["rank"], 1)
                    self.assertEqual(len(position), 2 if position[str(token)]["rank"] <= 2 else 3)

    def test_the_drawn_token_stands_among_those_that_are_named(self):
        chat = SERVER.post("/v1/chat/completions", messages=CHAT, logprobs=True, logprob_token_ids=[65, 66], **GREEDY)
        for entry in chat["choices"][0]["logprobs"]["content"]:
            tokens = [t["token"] for t in entry["top_logprobs"]]
            self.assertIn(entry["token"], tokens)
            self.assertEqual([t for t in tokens if t != entry["token"]], [t for t in ("A", "B") if t != entry["token"]])

    def test_seeds_and_shares_at_their_edges(self):
        body = {"prompt": "Hello", "max_tokens": 12, "temperature": 1.5}
        texts = [SERVER.post("/v1/completions", seed=seed, **body)["choices"][0]["text"] for seed in (-5, -5, 2**64 - 5, 5)]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2], "the same 64 bits")
        self.assertNotEqual(texts[0], texts[3])
        self.assertEqual(SERVER.post("/v1/completions", **{**body, "top_p": 0})["choices"][0]["text"],
                         SERVER.post("/v1/completions", **{**body, "temperature": 0})["choices"][0]["text"])

    def test_the_best_of_several(self):
        body = {"prompt": "Hello", "seed": 3, "max_tokens": 6, "logprobs": 0}
        means = [sum(c["logprobs"]["token_logprobs"]) / 6 for c in SERVER.post("/v1/completions", n=4, **body)["choices"]]
        got = SERVER.post("/v1/completions", n=1, best_of=4, **body)["choices"]
        self.assertEqual(len(got), 1)
        self.assertAlmostEqual(sum(got[0]["logprobs"]["token_logprobs"]) / 6, max(means), places=5)

    def test_beams_give_their_best_in_order(self):
        body = {"prompt": "Hello", "max_tokens": 6, "use_beam_search": True, "beam_width": 4, "n": 3, "return_token_ids": True, "length_penalty": 0.5}
        choices = SERVER.post("/v1/completions", **body)["choices"]
        self.assertEqual([c["index"] for c in choices], [0, 1, 2])
        scores = [c["beam_score"] for c in choices]
        self.assertEqual(scores, sorted(scores, reverse=True))
        for choice in choices:
            self.assertAlmostEqual(choice["beam_score"], choice["cumulative_logprob"] / len(choice["token_ids"]) ** 0.5, places=9)
        self.assertEqual(len({tuple(c["token_ids"]) for c in choices}), 3)
        # A prompt's answers are its own, whatever is beside it; a stream brings each in one piece.
        both = SERVER.post("/v1/completions", **{**body, "prompt": ["x", "Hello"]})["choices"]
        self.assertEqual([c["text"] for c in both[3:]], [c["text"] for c in choices])
        pieces = [c for event in SERVER.stream("/v1/completions", **body) for c in event["choices"]]
        self.assertEqual([(c["index"], c["text"]) for c in pieces], [(c["index"], c["text"]) for c in choices])
        chat = SERVER.post("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], n=2, use_beam_search=True, max_tokens=5)
        self.assertEqual(len(chat["choices"]), 2, "the width is n where nothing else says it")
        self.assertGreaterEqual(chat["choices"][0]["beam_score"], chat["choices"][1]["beam_score"])

    def test_what_beams_do_not_go_with_is_refused(self):
        body = {"prompt": "Hello", "max_tokens": 6, "use_beam_search": True}
        for more, says in (({"n": 3, "beam_width": 2}, "beam_width"), ({"beam_width": 65}, "beam_width"), ({"logprobs": 1}, "logprobs"),
                           ({"presence_penalty": 1}, "presence_penalty"), ({"stop": "a"}, "stop_token_ids"), ({"early_stopping": "x"}, "early_stopping"),
                           ({"use_beam_search": False, "beam_width": 2}, "use_beam_search")):
            status, _, answer = SERVER.call("POST", "/v1/completions", {**body, **more})
            self.assertEqual(status, 400)
            self.assertIn(says, answer["error"]["message"])

    def test_every_form_of_prompt_is_taken(self):
        ids = [72, 101, 108, 108, 111]
        texts = [SERVER.post("/v1/completions", prompt=prompt, **GREEDY)["choices"] for prompt in ("Hello", ["Hello"], ids, [ids])]
        for choices in texts:
            self.assertEqual([c["text"] for c in choices], [texts[0][0]["text"]])
        self.assertEqual(len(SERVER.post("/v1/completions", prompt=["Hello", ids, "x"], **GREEDY)["choices"]), 3)

    def test_many_streams_at_once_say_what_each_says_alone(self):
        count = 64
        bodies = [{"model": ("tiny", "one", "two")[i % 3], "prompt": f"Question {i}: why?", "seed": i, "max_tokens": 24} for i in range(count)]
        alone = [SERVER.post("/v1/completions", **body)["choices"][0]["text"] for body in bodies]
        together = [""] * count

        def ask(i):
            chunks = SERVER.stream("/v1/completions", **bodies[i])
            together[i] = "".join(c["text"] for chunk in chunks for c in chunk["choices"])

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(served.LONG)
        self.assertEqual(together, alone)


class ChatTest(unittest.TestCase):
    def test_the_shapes(self):
        got = SERVER.post("/v1/chat/completions", model="one", messages=CHAT, logprobs=True, top_logprobs=2, **GREEDY)
        self.assertEqual(got["object"], "chat.completion")
        self.assertTrue(got["id"].startswith("chatcmpl-"))
        self.assertEqual(got["model"], "one")
        message = got["choices"][0]["message"]
        self.assertEqual((message["role"], message["refusal"]), ("assistant", None))
        content = got["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), 12)
        self.assertIsNone(got["choices"][0]["logprobs"]["refusal"])
        self.assertRegex(got["system_fingerprint"], "^fp_[0-9a-f]{10}$")
        self.assertEqual(got["service_tier"], "default")
        self.assertEqual(got["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)
        self.assertTrue(all(len(entry["top_logprobs"]) == 2 for entry in content))
        self.assertEqual(bytes(b for entry in content for b in entry["bytes"]).decode("utf-8", "replace"), message["content"])

    def test_a_stream_begins_with_the_role_and_ends_with_the_usage(self):
        whole = SERVER.post("/v1/chat/completions", model="one", messages=CHAT, **GREEDY)
        chunks = SERVER.stream("/v1/chat/completions", model="one", messages=CHAT,
                               stream_options={"include_usage": True, "continuous_usage_stats": True}, **GREEDY)
        self.assertEqual({chunk["id"] for chunk in chunks}, {chunks[0]["id"]})
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        deltas = [c for chunk in chunks for c in chunk["choices"]]
        self.assertEqual("".join(c["delta"].get("content", "") for c in deltas), whole["choices"][0]["message"]["content"])
        self.assertEqual([c["finish_reason"] for c in deltas if c["finish_reason"]], ["length"])
        self.assertEqual((chunks[-1]["choices"], chunks[-1]["usage"]), ([], whole["usage"]))
        self.assertTrue(all(chunk["usage"] for chunk in chunks))
        self.assertEqual({chunk["system_fingerprint"] for chunk in chunks}, {whole["system_fingerprint"]})
        so_far = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        self.assertEqual((so_far[0], so_far), (0, sorted(so_far)), "saying who speaks is no token")
        self.assertGreater(so_far[1], 0)
        quiet = SERVER.stream("/v1/chat/completions", messages=CHAT, stream_options={"continuous_usage_stats": True}, **GREEDY)
        self.assertFalse(any("usage" in chunk for chunk in quiet), "include_usage asks for it")

    def test_what_is_asked_of_the_prompt_comes_in_a_streams_first_chunk(self):
        body = {"messages": CHAT, "prompt_logprobs": 1, "return_token_ids": True, "n": 2, **GREEDY}
        whole = SERVER.post("/v1/chat/completions", **body)
        first, *others = SERVER.stream("/v1/chat/completions", **body)
        for key in ("prompt_token_ids", "prompt_logprobs"):
            self.assertEqual(first[key], whole[key])
            self.assertFalse(any(key in chunk for chunk in others), key)

    def test_metadata_comes_back(self):
        self.assertEqual(SERVER.post("/v1/chat/completions", messages=CHAT, metadata={"job": "7"}, **GREEDY)["metadata"], {"job": "7"})
        self.assertNotIn("metadata", SERVER.post("/v1/chat/completions", messages=CHAT, **GREEDY))

    def test_an_answer_goes_on_with_the_last_message(self):
        begun = [*CHAT, {"role": "assistant", "content": "It is  "}]
        def prompt(**fields):
            return "".join(SERVER.post("/tokenize", messages=begun, return_token_strs=True, **fields)["token_strs"])
        closed, opened = prompt(add_generation_prompt=False), prompt(continue_final_message=True)
        self.assertTrue(closed.startswith(opened) and len(closed) > len(opened), (closed, opened))
        self.assertEqual(opened, prompt(continue_final_message=True, add_generation_prompt=False))
        used = SERVER.post("/v1/chat/completions", messages=begun, continue_final_message=True, **GREEDY)["usage"]["prompt_tokens"]
        self.assertEqual(used, SERVER.post("/tokenize", messages=begun, continue_final_message=True)["count"])

    def test_a_stream_ends_with_the_adapters_that_its_head_tells(self):
        for path, body in (("/v1/chat/completions", {"messages": CHAT}), ("/v1/completions", {"prompt": "x"})):
            _, headers, _ = SERVER.call("POST", path, {"model": "one", **body, **GREEDY})
            last = SERVER.stream(path, model="one", **body, **GREEDY)[-1]
            told = "; ".join("{name}; generation={generation}; digest={digest}".format(**a) for a in last["adapters"])
            self.assertEqual(told, headers["X-Choral-Adapter"])
            self.assertNotIn("adapters", SERVER.stream(path, **body, **GREEDY)[-1])

    def test_messages_come_in_many_forms(self):
        plain = SERVER.post("/v1/chat/completions", messages=CHAT, **GREEDY)["choices"][0]["message"]["content"]
        parts = [{"role": "user", "content": [{"type": "text", "text": "Say something."}]}]
        self.assertEqual(SERVER.post("/v1/chat/completions", messages=parts, **GREEDY)["choices"][0]["message"]["content"], plain)
        system, developer = ([{"role": role, "content": "Be brief."}, *CHAT] for role in ("system", "developer"))
        self.assertEqual(*(SERVER.post("/v1/chat/completions", messages=m, **GREEDY)["choices"] for m in (system, developer)))

    def test_max_completion_tokens_wins(self):
        got = SERVER.post("/v1/chat/completions", messages=CHAT, max_tokens=3, max_completion_tokens=5, temperature=0, ignore_eos=True)
        self.assertEqual(got["usage"]["completion_tokens"], 5)


class ErrorsTest(unittest.TestCase):
    def refusal(self, status, path, body, method="POST", says=(), **fields):
        got, _, answer = SERVER.call(method, path, body)
        self.assertEqual(got, status, answer)
        self.assertEqual(set(answer), {"error"})
        self.assertLessEqual({"message", "type", "param", "code"}, set(answer["error"]))
        for text in says:
            self.assertIn(text, answer["error"]["message"])
        for key, value in fields.items():
            self.assertEqual(answer["error"][key], value)
        self.assertNotIn(str(FILES.folder), json.dumps(answer))

    def test_what_is_wrong_is_said(self):
        chat, plain = "/v1/chat/completions", "/v1/completions"
        self.refusal(400, chat, "{", type="invalid_request_error")
        self.refusal(400, chat, "[]")
        self.refusal(400, chat, {}, param="messages", says=["missing"])
        self.refusal(400, chat, {"messages": []}, param="messages")
        self.refusal(400, chat, {"messages": [{"role": "king", "content": "x"}]}, param="messages", says=["messages[0].role"])
        self.refusal(400, chat, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, says=["image_url"])
        self.refusal(400, chat, {"messages": CHAT, "temperature": "hot"}, param="temperature")
        self.refusal(400, chat, {"messages": CHAT, "top_logprobs": 2}, param="top_logprobs", says=["logprobs"])
        self.refusal(400, chat, {"messages": CHAT, "stream_options": {"include_usage": True}}, param="stream_options")
        self.refusal(400, chat, {"messages": CHAT, "functions": [{}]}, param="functions", says=["tools"])
        self.refusal(400, chat, {"messages": CHAT, "modalities": ["text", "audio"]}, param="modalities")
        self.refusal(400, chat, {"messages": CHAT, "mirostat": 2}, param="mirostat", says=["leave it out or send 0"])
        self.refusal(400, chat, {"messages": CHAT, "echo": True}, param="echo")
        self.refusal(400, chat, {"messages": CHAT, "n": 10**9})
        self.refusal(400, chat, {"messages": CHAT, "n": -1})
        self.refusal(400, chat, {"messages": CHAT, "stop": ["x"] * 100_000})
        self.refusal(400, chat, {"messages": CHAT, "logit_bias": {"99999999": 1}})
        self.refusal(400, plain, {"prompt": "x", "suffix": "y"}, param="suffix")
        self.refusal(400, plain, {"prompt": "x" * 1000}, says=["maximum context length is 256 tokens"], code="context_length_exceeded")
        self.refusal(400, chat, {"messages": [{"role": "user", "content": "x" * 5000}]}, code="context_length_exceeded")
        self.refusal(400, plain, {"prompt": [300]}, says=["300"])
        self.refusal(400, plain, "[" * 100_000)
        self.refusal(400, plain, b'{"prompt": "\xff\xfe"}')

    def test_an_unknown_model_is_404_with_the_nearest(self):
        self.refusal(404, "/v1/completions", {"model": "onee", "prompt": "x"}, code="model_not_found", param="model", says=["'one'"])
        status, _, _ = SERVER.call("GET", "/v1/models/nobody")
        self.assertEqual(status, 404)

    def test_what_a_missing_library_makes_impossible_is_refused_with_what_to_install(self):
        server = served.Server(FILES.model, env={"CHORAL_XGRAMMAR": str(FILES.folder / "empty")})
        self.addCleanup(server.stop)
        body = {"prompt": "x", "max_tokens": 20}
        status, _, answer = server.call("POST", "/v1/completions", {**body, "structured_outputs": {"regex": "[ab]+"}})
        self.assertEqual(status, 400)
        self.assertIn("pip install --no-deps xgrammar==", answer["error"]["message"])
        self.assertNotRegex(answer["error"]["message"], r"(^|[ '\"(:=])/(?!v1/)\w")  # no path
        self.assertEqual(server.post("/v1/completions", **body, structured_outputs={"choice": ["yes"]})["choices"][0]["text"], "yes")

    def test_routes(self):
        self.refusal(404, "/v1/nothing", {})
        self.refusal(405, "/v1/completions", None, method="GET")
        self.refusal(404, "/v1/../v1/models", None, method="GET")

    def test_unknown_fields_are_told(self):
        warning = "the field 'temprature' is not known and has no effect; did you mean 'temperature'?"
        for path, body in (("/v1/completions", {"prompt": "x"}), ("/v1/chat/completions", {"messages": CHAT}),
                           ("/v1/responses", {"input": "x", "max_output_tokens": 16}), ("/v1/completions", {"prompt": "x", "stream": True}),
                           ("/v1/chat/completions", {"mesages": CHAT})):
            _, headers, _ = SERVER.call("POST", path, {**body, "user": "me", "temprature": 0, "max_tokens": 3})
            self.assertIn(warning, headers.get_all("X-Choral-Warnings"), path)
        _, headers, _ = SERVER.call("POST", "/v1/chat/completions", {"mesages": CHAT})
        self.assertIn("did you mean 'messages'?", headers["X-Choral-Warnings"])
        _, headers, _ = SERVER.call("POST", "/v1/completions", {"prompt": "x", "user": "me", "mirostat": 0, "cache_prompt": True, **GREEDY})
        self.assertIsNone(headers["X-Choral-Warnings"])
        _, headers, _ = SERVER.call("POST", "/v1/completions", {"prompt": "x", "a\r\nX-Evil: 1": 1, "max_tokens": 1})
        self.assertIsNone(headers["X-Evil"])
        self.assertEqual("".join(SERVER.said).count(warning), 1, "logged once")


class ResponsesTest(unittest.TestCase):
    BODY = {"input": "Say something.", "max_output_tokens": 16, "temperature": 0}

    def test_what_an_answer_says_of_itself(self):
        said = {"prompt_cache_key": "k", "safety_identifier": "s", "metadata": {"a": "b"}, "top_logprobs": 2}
        got = SERVER.post("/v1/responses", **self.BODY, **said)
        self.assertTrue(got["id"].startswith("resp_") and got["output"][0]["id"].startswith("msg_"), got["id"])
        self.assertLessEqual(said.items(), got.items())
        self.assertEqual((got["service_tier"], got["background"], got["max_tool_calls"]), ("default", False, None))
        self.assertIsNone(got["completed_at"], "it is incomplete")
        ended = SERVER.post("/v1/responses", input="x", stop=[""], structured_outputs={"choice": ["yes"]})
        self.assertEqual(ended["status"], "completed")
        self.assertGreaterEqual(ended["completed_at"], ended["created_at"])

    def test_logprobs_come_where_they_are_included(self):
        body = {**self.BODY, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
        part = SERVER.post("/v1/responses", **body)["output"][0]["content"][0]
        self.assertEqual(len(part["logprobs"]), 16)
        self.assertTrue(all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"]))
        self.assertEqual(SERVER.post("/v1/responses", **self.BODY)["output"][0]["content"][0]["logprobs"], [])

    def test_tools_are_chosen_in_the_form_of_this_api(self):
        tools = [{"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}} for name in ("f", "g")]
        choice = {"type": "function", "name": "g"}
        files = served.Files(context=1024)  # room for what the prompt says of the tools
        self.addCleanup(files.temp.cleanup)
        server = served.Server(files.model)
        self.addCleanup(server.stop)
        got = server.post("/v1/responses", **{**self.BODY, "max_output_tokens": 40}, tools=tools, tool_choice=choice, logit_bias={"125": 90})
        self.assertEqual(got["tool_choice"], choice)
        self.assertEqual([item["name"] for item in got["output"] if item["type"] == "function_call"], ["g"], got["output"])


class ToolsTest(unittest.TestCase):
    """Of models whose chat template shows no tools."""
    BODY = {"messages": CHAT, "tools": [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}],
            "max_tokens": 2, "return_token_ids": True}

    def serve(self, template, *flags):
        files = served.Files(context=2048)
        self.addCleanup(files.temp.cleanup)
        (files.folder / "template.jinja").write_text(template)
        server = served.Server(files.model, "--chat-template", files.folder / "template.jinja", *flags, env={"CHORAL_LOG_LEVEL": "info"})
        self.addCleanup(server.stop)
        return server

    def prompt(self, server, **fields):
        return server.post("/detokenize", tokens=server.post("/v1/chat/completions", **self.BODY, **fields)["prompt_token_ids"])["prompt"]

    def test_a_family_that_is_known_is_told_of_them(self):
        server = self.serve("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}")
        prompt = self.prompt(server)
        self.assertIn('"name":"look_up"', prompt)
        self.assertIn("<tool_call>", prompt)
        self.assertNotIn("look_up", self.prompt(server, tool_choice="none"))
        self.assertIn("the chat template does not show tools", "".join(server.said))

    def test_one_that_is_not_known_is_an_error_that_says_so(self):
        template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
        status, _, answer = self.serve(template).call("POST", "/v1/chat/completions", self.BODY)
        self.assertEqual((status, answer["error"]["param"]), (400, "tools"), answer)
        self.assertIn("--tool-call-parser", answer["error"]["message"])
        self.assertIn("look_up", self.prompt(self.serve(template, "--tool-call-parser", "json")))


class EmbeddingsTest(unittest.TestCase):
    def test_a_text_may_take_the_whole_context(self):
        whole = SERVER.post("/v1/embeddings", input=[7] * 256)
        self.assertEqual(whole["usage"]["prompt_tokens"], 256)
        cut = SERVER.post("/v1/embeddings", input=[7] * 300, truncate_prompt_tokens=-1)
        self.assertEqual(cut["usage"]["prompt_tokens"], 256)
        self.assertEqual(cut["data"], whole["data"])
        self.assertEqual(SERVER.call("POST", "/v1/embeddings", {"input": [7] * 257})[2]["error"]["code"], "context_length_exceeded")


class OthersTest(unittest.TestCase):
    def test_models(self):
        status, _, models = SERVER.call("GET", "/v1/models")
        self.assertEqual(status, 200)
        self.assertEqual([m["id"] for m in models["data"]], ["tiny", "one", "two"])
        self.assertEqual([m["parent"] for m in models["data"]], [None, "tiny", "tiny"])
        self.assertEqual(SERVER.call("GET", "/v1/models/one")[2]["id"], "one")
        self.assertNotIn(str(FILES.folder), json.dumps(models))

    def test_texts_are_tokenised_up_to_eight_contexts(self):
        most = 8 * served.tiny_model.CONTEXT
        self.assertEqual(SERVER.post("/tokenize", prompt="x" * most)["count"], most)
        status, _, answer = SERVER.call("POST", "/tokenize", {"prompt": "x" * (most + 1)})
        self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]), (400, "too_large", "prompt"))
        self.assertIn(f"at most {most}", answer["error"]["message"])
        self.assertEqual(SERVER.call("POST", "/tokenize", {"messages": [{"role": "user", "content": "x" * most}]})[0], 400)
        self.assertEqual(SERVER.post("/detokenize", tokens=[97] * most)["prompt"], "a" * most)
        self.assertEqual(SERVER.call("POST", "/detokenize", {"tokens": [97] * (most + 1)})[0], 400)

    def test_tokenize_and_back(self):
        got = SERVER.post("/tokenize", prompt="Hello", return_token_strs=True)
        self.assertEqual((got["tokens"], got["count"], got["max_model_len"]), ([72, 101, 108, 108, 111], 5, 256))
        self.assertEqual(SERVER.post("/detokenize", tokens=got["tokens"])["prompt"], "Hello")
        self.assertGreater(SERVER.post("/tokenize", messages=CHAT)["count"], 10)

    def test_health(self):
        for path in ("/health", "/readyz"):
            self.assertEqual(SERVER.call("GET", path)[0], 200, path)
        self.assertRegex(SERVER.call("GET", "/version")[2]["version"], r"^\d+\.\d+\.\d+$")

    def test_a_client_that_leaves_stops_its_answer(self):
        for stream in (True, False):
            with socket.create_connection(("127.0.0.1", SERVER.port), timeout=served.LONG) as client:
                body = json.dumps({"prompt": "x", "max_tokens": 200, "ignore_eos": True, "stream": stream, "n": 64}).encode()
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                if stream:
                    client.recv(1000)
            # Another request is answered while what was left would have computed for long.
            SERVER.post("/v1/completions", prompt="y", max_tokens=2)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
