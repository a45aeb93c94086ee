#!/usr/bin/env python3
"""Answers of thinking models and their calls, read by the marks of each family: answers_test.py CHORAL [unittest arguments]. The models
say what the test wrote (scripted_model.py)."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

import served
import scripted_model

TEMP = tempfile.TemporaryDirectory()
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]
# The prompt's end: what the last message's last letter says, behind what the template writes; "o" opens thoughts, "n" has none.
QWEN = ("{% if tools %}<tool_call> {{ tools | tojson }}{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
        "{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}"
        "{% if effort_shown %}[{{ reasoning_effort }}]{% endif %}{{ messages[-1].content[-1] }}")
SCRIPTS = {
    "1": ["<think>", "\n1a", "1b\n", "</think>", "\n\nYes", ", it is."],
    "2": ["<think>2", "2a"],
    "3": ["No", " thoughts", " here"],
    "5": ["One", " 42", " more"],
    "4": ["<think>\n4", "</think>\n", "<tool_call>", "\n{\"name\": \"look\", ", "\"arguments\": {\"city\"", ": \"Rome\"}}", "\n</tool_call>"],
}


def setUpModule():
    global SERVER
    model = scripted_model.write_scripted_model(pathlib.Path(TEMP.name) / "qwen", SCRIPTS, QWEN)
    SERVER = served.Server(model, env={"CHORAL_LOG_LEVEL": "info"})


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)
    TEMP.cleanup()


def asked(letter, **fields):
    return {"messages": [{"role": "user", "content": f"say {letter}"}], "temperature": 0, "max_tokens": 40, **fields}


def together(chunks):
    """The message that a client adds up, and the reason why it ended."""
    message, reason = {}, None
    for chunk in chunks:
        for choice in chunk["choices"]:
            reason = choice["finish_reason"] or reason
            for key, value in choice["delta"].items():
                if key == "tool_calls":
                    for call in value:
                        calls = message.setdefault(key, [])
                        if call["index"] == len(calls):
                            calls.append({"name": call["function"]["name"], "arguments": ""})
                        calls[call["index"]]["arguments"] += call["function"]["arguments"]
                elif value is not None:
                    message[key] = message.get(key, "") + value
    return message, reason


class ThoughtsTest(unittest.TestCase):
    def test_stand_beside_the_answer(self):
        got = SERVER.post("/v1/chat/completions", **asked(1))
        message = got["choices"][0]["message"]
        self.assertEqual((message["reasoning"], message["reasoning_content"], message["content"]), ("1a1b", "1a1b", "Yes, it is."))
        self.assertEqual(got["usage"]["completion_tokens"], 7, got)
        self.assertEqual(got["usage"]["completion_tokens_details"]["reasoning_tokens"], 4)
        self.assertEqual(got["choices"][0]["finish_reason"], "stop")
        self.assertIn("thoughts: read as qwen3's", "".join(SERVER.said))

    def test_come_in_the_stream_before_it(self):
        chunks = SERVER.stream("/v1/chat/completions", **asked(1, stream_options={"include_usage": True}))
        message, reason = together(chunks)
        self.assertEqual(message, {"role": "assistant", "reasoning": "1a1b", "reasoning_content": "1a1b", "content": "Yes, it is."})
        self.assertEqual(reason, "stop")
        self.assertEqual(chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"], 4)

    def test_that_nobody_wants_are_left_out(self):
        self.assertNotIn("reasoning", (message := SERVER.post("/v1/chat/completions", **asked(1, include_reasoning=False))["choices"][0]["message"]))
        self.assertEqual(message["content"], "Yes, it is.")
        message, _ = together(SERVER.stream("/v1/chat/completions", **asked(1, include_reasoning=False)))
        self.assertEqual(message, {"role": "assistant", "content": "Yes, it is."})

    def test_that_never_end_are_no_content(self):
        got = SERVER.post("/v1/chat/completions", **asked(1, max_tokens=3))["choices"][0]
        self.assertEqual((got["message"]["reasoning"], got["message"]["content"], got["finish_reason"]), ("1a1b", None, "length"))
        got = SERVER.post("/v1/chat/completions", **asked(2))["choices"][0]
        self.assertEqual((got["message"]["reasoning"], got["message"]["content"]), ("22a", None))

    def test_an_answer_without_them_is_as_it_was(self):
        got = SERVER.post("/v1/chat/completions", **asked(3))
        self.assertEqual(got["choices"][0]["message"], {"role": "assistant", "content": "No thoughts here", "refusal": None})
        self.assertEqual(got["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)

    def test_a_call_comes_behind_them(self):
        got = SERVER.post("/v1/chat/completions", **asked(4, tools=TOOLS))["choices"][0]
        self.assertEqual((got["message"]["reasoning"], got["message"]["content"], got["finish_reason"]), ("4", None, "tool_calls"))
        self.assertEqual(got["message"]["tool_calls"][0]["function"], {"name": "look", "arguments": '{"city": "Rome"}'})
        message, reason = together(SERVER.stream("/v1/chat/completions", **asked(4, tools=TOOLS)))
        self.assertEqual((message["reasoning"], message["tool_calls"], reason),
                         ("4", [{"name": "look", "arguments": '{"city": "Rome"}'}], "tool_calls"))

    def test_end_behind_their_budget(self):
        for fields, thought in (({"thinking_budget": 1}, "1a"), ({"thinking_token_budget": 2}, "1a1b"), ({"thinking_budget_tokens": 0}, None),
                                ({"reasoning_budget_tokens": 40}, "1a1b"), ({"thinking_budget": -1}, "1a1b"), ({"thinking_budget": None}, "1a1b")):
            got = SERVER.post("/v1/chat/completions", **asked(1, n=2, **fields))
            for choice in got["choices"]:
                self.assertEqual((choice["message"].get("reasoning"), choice["message"]["content"]), (thought, "Yes, it is."), fields)
            message, reason = together(SERVER.stream("/v1/chat/completions", **asked(1, **fields)))
            self.assertEqual((message.get("reasoning"), message["content"], reason), (thought, "Yes, it is.", "stop"), fields)
        # Thoughts that the model would never end.
        message = SERVER.post("/v1/chat/completions", **asked(2, thinking_budget=1))["choices"][0]["message"]
        self.assertEqual((message["reasoning"], message["content"]), ("22a", "Yes, it is."))
        message = SERVER.post("/v1/chat/completions", **asked(3, thinking_budget=0))["choices"][0]["message"]
        self.assertEqual(message["content"], "No thoughts here")
        output = SERVER.post("/v1/responses", input="say 1", temperature=0, thinking_budget=1)["output"]
        self.assertEqual([item["content"][0]["text"] for item in output], ["1a", "Yes, it is."])

    def test_a_budget_that_cannot_be_is_refused(self):
        for path, fields, status in (("/v1/chat/completions", asked(1, thinking_budget=-2), 400),
                                     ("/v1/completions", {"prompt": "say 1", "thinking_budget": 3}, 400)):
            status_got, _, answer = SERVER.call("POST", path, fields)
            self.assertEqual((status_got, answer["error"]["param"]), (status, "thinking_budget"), answer)

    def test_earlier_ones_reach_the_template_as_do_its_variables(self):
        def prompt(messages, **fields):
            ids = SERVER.post("/v1/chat/completions", messages=messages, max_tokens=1, return_token_ids=True, **fields)["prompt_token_ids"]
            return SERVER.post("/detokenize", tokens=ids)["prompt"]
        for name in ("reasoning_content", "reasoning"):
            messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", name: "why"}, {"role": "user", "content": "c3"}]
            self.assertIn("<think>why</think>b", prompt(messages))
        messages = [{"role": "user", "content": "c3"}]
        self.assertIn("<think>\n\n</think>3", prompt(messages, chat_template_kwargs={"enable_thinking": False}))
        self.assertNotIn("<think>", prompt(messages, chat_template_kwargs={"enable_thinking": True}))
        self.assertIn("[low]3", prompt(messages, reasoning_effort="low", chat_template_kwargs={"effort_shown": True}))
        status, _, answer = SERVER.call("POST", "/v1/chat/completions", {"messages": [{"role": "assistant", "content": "b", "reasoning": 7}]})
        self.assertEqual((status, answer["error"]["param"]), (400, "messages"), answer)


class StopsTest(unittest.TestCase):
    def test_a_text_of_digits_is_a_text_and_a_token_a_number(self):
        body = {"messages": [{"role": "user", "content": "say 5"}], "temperature": 0}
        (last,) = SERVER.post("/tokenize", prompt=" more", add_special_tokens=False)["tokens"]
        for stop, want in (({"stop": ["42"]}, "42"), ({"stop_token_ids": [last]}, last), ({}, None)):
            for path, ask in (("/v1/chat/completions", body), ("/v1/completions", {"prompt": "say 5", "temperature": 0})):
                whole = SERVER.post(path, **ask, **stop)["choices"][0]
                self.assertEqual((whole["finish_reason"], whole["stop_reason"]), ("stop", want), path)
                ends = [chunk["choices"][0] for chunk in SERVER.stream(path, **ask, **stop) if chunk["choices"]]
                self.assertEqual(ends[-1]["stop_reason"], want, path)
        native = SERVER.post("/completion", prompt="say 5", temperature=0, stop=[str(last)], stop_token_ids=[last])
        self.assertEqual((native["stop_type"], native["stopping_word"]), ("eos", ""))


class ResponsesTest(unittest.TestCase):
    def test_thoughts_are_items(self):
        got = SERVER.post("/v1/responses", input="say 1", temperature=0)
        self.assertEqual([item["type"] for item in got["output"]], ["reasoning", "message"])
        thought, message = got["output"]
        self.assertEqual((thought["content"], thought["summary"]), ([{"type": "reasoning_text", "text": "1a1b"}], []))
        self.assertTrue(thought["id"].startswith("rs_"))
        self.assertEqual(message["content"][0]["text"], "Yes, it is.")
        self.assertEqual(got["usage"]["output_tokens_details"]["reasoning_tokens"], 4)

    def test_their_log_probabilities_are_nobodys(self):
        for stream in (False, True):
            body = {"input": "say 1", "temperature": 0, "include": ["message.output_text.logprobs"]}
            if stream:
                got = SERVER.call("POST", "/v1/responses", {**body, "stream": True})[2].split("data: ")[-1]
                got = json.loads(got)["response"]
            else:
                got = SERVER.post("/v1/responses", **body)
            tokens = [entry["token"] for entry in got["output"][1]["content"][0]["logprobs"]]
            self.assertEqual(tokens[:2], ["\n\nYes", ", it is."])

    def test_a_stream_of_them(self):
        with served.contextlib.closing(SERVER.connection()) as connection:
            connection.request("POST", "/v1/responses", body=json.dumps({"input": "say 1", "temperature": 0, "stream": True}), headers=served.JSON)
            text = connection.getresponse().read().decode()
        events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: ")]
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
        kinds = [e["type"].removeprefix("response.") for e in events]
        self.assertEqual([k for at, k in enumerate(kinds) if k != kinds[at - 1]],
                         ["created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
                          "content_part.done", "output_item.done", "output_item.added", "content_part.added", "output_text.delta",
                          "output_text.done", "content_part.done", "output_item.done", "completed"])
        self.assertEqual("".join(e["delta"] for e in events if e["type"] == "response.reasoning_text.delta"), "1a1b")
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        self.assertEqual(done, events[-1]["response"]["output"])

    def test_they_go_back_as_they_came(self):
        output = SERVER.post("/v1/responses", input="say 1", temperature=0)["output"]
        conversation = [{"role": "user", "content": "say 1"}, *output, {"role": "user", "content": "say 3"}]
        self.assertEqual(SERVER.post("/v1/responses", input=conversation, temperature=0)["output"][0]["content"][0]["text"], "No thoughts here")


class FamiliesTest(unittest.TestCase):
    def serve(self, scripts, template, *flags, special=()):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        server = served.Server(scripted_model.write_scripted_model(pathlib.Path(temp.name) / "m", scripts, template, special), *flags)
        self.addCleanup(server.stop)
        return server

    def test_gpt_oss(self):
        marks = ["<|channel|>", "<|message|>", "<|end|>", "<|start|>"]
        # A token stands once: here the marks' first use are special tokens, the rest is written with them inside longer ones.
        script = ["<|channel|>", "analysis", "<|message|>", "Think.", "<|end|>", "<|start|>", "assistant<|channel|>commentary to=functions.look",
                  " <|constrain|>json<|message|>", "{\"city\": ", "\"Rome\"}"]
        server = self.serve({"1": script, "2": ["<|channel|>final<|message|>", "It rains"]}, "{% if tools %}<|channel|><|message|>{{ tools | tojson }}{% endif %}{{ messages[-1].content[-1] }}",
                            special=marks)
        self.assertEqual(server.post("/v1/chat/completions", **asked(2))["choices"][0]["message"]["content"], "It rains")
        for stream in (False, True):
            if stream:
                message, reason = together(server.stream("/v1/chat/completions", **asked(1, tools=TOOLS)))
                calls = message["tool_calls"]
            else:
                choice = server.post("/v1/chat/completions", **asked(1, tools=TOOLS))["choices"][0]
                message, reason = choice["message"], choice["finish_reason"]
                calls = [call["function"] for call in message["tool_calls"]]
            self.assertEqual((message["reasoning"], calls, reason), ("Think.", [{"name": "look", "arguments": '{"city": "Rome"}'}], "tool_calls"))

    def test_qwen3_coder_and_flags(self):
        script = ["<think>", "Hm", "</think>", "<tool_call>\n<function=look>", "\n<parameter=city>\n", "42\n</parameter>", "\n<parameter=days>\n3",
                  "\n</parameter>\n</function>\n</tool_call>"]
        template = "{{ messages[-1].content[-1] }}{# tools #}"
        server = self.serve({"1": script}, template, "--tool-call-parser", "qwen3_coder", "--reasoning-parser", "deepseek_r1")
        message = server.post("/v1/chat/completions", **asked(1, tools=TOOLS))["choices"][0]["message"]
        self.assertEqual((message["reasoning"], message["tool_calls"][0]["function"]),
                         ("Hm", {"name": "look", "arguments": '{"city": "42", "days": 3}'}))
        plain = self.serve({"1": script}, template + "{# <think> #}", "--reasoning-parser", "none")
        self.assertTrue(plain.post("/v1/chat/completions", **asked(1))["choices"][0]["message"]["content"].startswith("<think>Hm</think><tool_call>"))

    @unittest.skipUnless(os.environ.get("CHORAL_XGRAMMAR"), "CHORAL_XGRAMMAR names no folder with xgrammar")
    def test_a_form_holds_what_follows_the_thoughts(self):
        # What follows is not what the script says, but what the form leaves of it.
        server = self.serve({"\n": ["Free {thoughts", "</think>", "[1", ", 2]"], "x": ["<think>"]}, "{{ messages[-1].content }}{{ '<think>\\n' }}")
        schema = {"type": "object", "properties": {"n": {"enum": [1]}}, "required": ["n"]}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
        # Where the script may not go on, rather these than white space without an end.
        likely = {"logit_bias": {**{str(ord(c)): 5 for c in '{"n:1}]'}, "257": 6}, "max_tokens": 200}
        message = server.post("/v1/chat/completions", **asked(1, response_format=form, **likely))["choices"][0]["message"]
        self.assertEqual((message["reasoning"], json.loads(message["content"])), ("Free {thoughts", {"n": 1}))
        named = {"type": "function", "function": {"name": "go"}}
        tools = [{"type": "function", "function": {"name": "go", "parameters": schema}}]
        for choice in (named, "required"):
            message = server.post("/v1/chat/completions", **asked(1, tools=tools, tool_choice=choice, **likely))["choices"][0]["message"]
            call = message["tool_calls"][0]["function"]
            self.assertEqual((message["reasoning"], message["content"], call["name"], json.loads(call["arguments"])),
                             ("Free {thoughts", None, "go", {"n": 1}))

    def test_a_prompt_that_opens_thoughts(self):
        server = self.serve({"\n": ["R1", " thinks", "</think>", "\n\nAnd says"]}, "{{ messages[-1].content }}{{ '<think>\\n' }}")
        message = server.post("/v1/chat/completions", **asked(1))["choices"][0]["message"]
        self.assertEqual((message["reasoning"], message["content"]), ("R1 thinks", "And says"))

    def test_a_budget_ends_thoughts_that_the_prompt_opened(self):
        server = self.serve({"\n": ["R1", " thinks", " on", "</think>", "\n\nAnd says"]}, "{{ messages[-1].content }}{{ '<think>\\n' }}")
        for budget, thought in ((0, None), (1, "R1"), (2, "R1 thinks"), (3, "R1 thinks on")):
            message = server.post("/v1/chat/completions", **asked(1, thinking_budget=budget))["choices"][0]["message"]
            self.assertEqual((message.get("reasoning"), message["content"]), (thought, "And says"))

    def test_the_end_of_thoughts_is_spelled_as_the_tokenizer_does(self):
        # It is no token by itself here: its letters are.
        server = self.serve({"1": ["<think>xx", "yy", "zz</think>"], ">": ["Done", " it"]}, "{# <think> #}{{ messages[-1].content[-1] }}")
        got = server.post("/v1/chat/completions", **asked(1, thinking_budget=1, return_token_ids=True))["choices"][0]
        self.assertEqual((got["message"]["reasoning"], got["message"]["content"]), ("xxyy", "Done it"))
        self.assertIn([ord(c) for c in "</think>"], [got["token_ids"][i:i + 8] for i in range(len(got["token_ids"]))])

    def test_a_call_comes_behind_a_budget(self):
        script = ["<think>", "aa", "bb", "cc", "</think>", "<tool_call>", "\n{\"name\": \"look\", ", "\"arguments\": {\"city\"", ": \"Rome\"}}", "\n</tool_call>"]
        server = self.serve({"1": script}, QWEN)
        for choice in ("auto", "required"):
            message = server.post("/v1/chat/completions", **asked(1, tools=TOOLS, tool_choice=choice, thinking_budget=2))["choices"][0]["message"]
            if choice == "auto" or os.environ.get("CHORAL_XGRAMMAR"):
                self.assertEqual((message["reasoning"], message["tool_calls"][0]["function"]), ("aabb", {"name": "look", "arguments": '{"city": "Rome"}'}))
            message, reason = together(server.stream("/v1/chat/completions", **asked(1, tools=TOOLS, tool_choice="auto", thinking_budget=2)))
            self.assertEqual((message["reasoning"], message["tool_calls"][0]["name"], reason), ("aabb", "look", "tool_calls"))

    @unittest.skipUnless(os.environ.get("CHORAL_XGRAMMAR"), "CHORAL_XGRAMMAR names no folder with xgrammar")
    def test_a_form_comes_behind_a_budget(self):
        server = self.serve({"\n": ["Free", " {thoughts", " on and on", "</think>", "{\"n\":1}"], "x": ["<think>"]},
                            "{{ messages[-1].content }}{{ '<think>\\n' }}")
        schema = {"type": "object", "properties": {"n": {"enum": [1]}}, "required": ["n"]}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
        message = server.post("/v1/chat/completions", **asked(1, response_format=form, thinking_budget=2))["choices"][0]["message"]
        self.assertEqual((message["reasoning"], json.loads(message["content"])), ("Free {thoughts", {"n": 1}))

    def test_gpt_oss_has_a_budget_over_all_its_channels(self):
        script = ["<|channel|>", "analysis", "<|message|>", "Think", " more", "<|end|>"]
        server = self.serve({"1": script, "2": ["<|start|>"], "3": ["assistant"], "4": ["final"]},
                            "{% if tools %}<|channel|><|message|>{{ tools | tojson }}{% endif %}{{ messages[-1].content[-1] }}",
                            special=["<|channel|>", "<|message|>", "<|end|>", "<|start|>"])
        got = server.post("/v1/chat/completions", **asked(1, thinking_budget=1, max_tokens=20))["choices"][0]
        # The final channel begins behind the end; what this model says there is what follows its mark.
        self.assertEqual((got["message"]["reasoning"], got["message"]["content"][:5]), ("Think", "Think"))

    @unittest.skipUnless(os.environ.get("CHORAL_XGRAMMAR"), "CHORAL_XGRAMMAR names no folder with xgrammar")
    def test_gpt_oss_calls_the_function_that_is_named(self):
        script = ["<|channel|>analysis<|message|>", "Think.", "<|end|>", "<|start|>assistant",
                  "<|channel|>commentary to=functions.look <|constrain|>json<|message|>", '{"city": ', '"Rome"}']
        server = self.serve({"1": script}, "{% if tools %}<|channel|><|message|>{{ tools | tojson }}{% endif %}{{ messages[-1].content[-1] }}")
        other = {"type": "function", "function": {"name": "other"}}
        for choice in ({"type": "function", "function": {"name": "look"}}, "required", "auto"):
            message = server.post("/v1/chat/completions", **asked(1, tools=[*TOOLS, other], tool_choice=choice))["choices"][0]["message"]
            self.assertEqual((message["reasoning"], message["content"], [call["function"] for call in message["tool_calls"]]),
                             ("Think.", None, [{"name": "look", "arguments": '{"city": "Rome"}'}]), choice)
            message, _ = together(server.stream("/v1/chat/completions", **asked(1, tools=[*TOOLS, other], tool_choice=choice)))
            self.assertEqual((message["reasoning"], message["tool_calls"]), ("Think.", [{"name": "look", "arguments": '{"city": "Rome"}'}]))

    def test_gpt_oss_gets_earlier_thoughts_as_its_template_wants(self):
        template = ("{% for m in messages %}[{{ m.role }}{% if m.thinking %} thinks {{ m.thinking }}{% endif %}"
                    "{% if 'tool_calls' in m %} calls {{ m.tool_calls[0].function.name }}{% endif %}: {{ m.content }}]{% endfor %}"
                    "{# message.thinking <|channel|> <|message|> tools #}")
        server = self.serve({"]": ["xx"]}, template)
        calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("f", "g")]
        messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "I look.", "reasoning": "hm", "tool_calls": calls},
                    {"role": "tool", "tool_call_id": "g", "content": "rg"}, {"role": "tool", "tool_call_id": "f", "content": "rf"}]
        want = "[user: q][assistant thinks hm\n\nI look. calls f: ][tool: rf][assistant calls g: ][tool: rg]"
        self.assertEqual(server.post("/apply-template", messages=messages)["prompt"], want)
        ids = server.post("/tokenize", messages=messages)["tokens"]
        self.assertEqual(server.post("/detokenize", tokens=ids)["prompt"], want)
        self.assertEqual(server.post("/v1/chat/completions", messages=messages, max_tokens=1)["usage"]["prompt_tokens"], len(ids))

    def test_gemma_4_by_its_own_marks(self):
        script = ["<|channel>", "thought\nIt is", " Rome.", "<channel|>", "<|tool_call>", "call:look{city:", "<|\"|>", "Rome, \"it\"", "<|\"|>,",
                  "days:3}", "<tool_call|>"]
        marks = ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>"]
        server = self.serve({"1": script}, "{{ messages[-1].content[-1] }}{# tools <|channel>thought <channel|> <|tool_call> <tool_call|> #}", special=marks)
        for message in (server.post("/v1/chat/completions", **asked(1, tools=TOOLS))["choices"][0]["message"],
                        together(server.stream("/v1/chat/completions", **asked(1, tools=TOOLS)))[0]):
            call = message["tool_calls"][0].get("function", message["tool_calls"][0])
            self.assertEqual((message["reasoning"], call["name"], json.loads(call["arguments"])),
                             ("It is Rome.", "look", {"city": 'Rome, "it"', "days": 3}))

    def test_a_model_whose_thoughts_are_not_known_has_no_budget(self):
        server = self.serve({"1": ["xx"]}, "{{ messages[-1].content[-1] }}")
        status, _, answer = server.call("POST", "/v1/chat/completions", asked(1, thinking_budget=3))
        self.assertEqual((status, answer["error"]["param"]), (400, "thinking_budget"), answer)
        self.assertIn("--reasoning-parser", answer["error"]["message"])
        self.assertEqual(server.call("POST", "/v1/chat/completions", asked(1, thinking_budget=-1))[0], 200)

    def test_a_name_that_there_is_not(self):
        for flag, name, near in (("--reasoning-parser", "qwen", "qwen3"), ("--tool-call-parser", "kimi_k", "kimi_k2")):
            with self.assertRaisesRegex(AssertionError, f"did you mean {near}"):
                self.serve({"1": ["xx"]}, "{{ messages[-1].content[-1] }}", flag, name)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
