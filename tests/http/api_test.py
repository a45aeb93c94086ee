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

    def test_the_best_of_several(self):
        body = {"prompt": "Hello", "seed": 3, "max_tokens": 6, "logprobs": 0}
        means = [sum(c["logprobs"]["token_logprobs"]) / 6 for c in SERVER.post("/v1/completions", n=4, **body)["choices"]]
        got = SERVER.post("/v1/completions", n=1, best_of=4, **body)["choices"]
        self.assertEqual(len(got), 1)
        self.assertAlmostEqual(sum(got[0]["logprobs"]["token_logprobs"]) / 6, max(means), places=5)

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
        self.refusal(400, chat, {"messages": CHAT, "functions": []}, param="functions", says=["tools"])
        self.refusal(400, chat, {"messages": CHAT, "n": 10**9})
        self.refusal(400, chat, {"messages": CHAT, "n": -1})
        self.refusal(400, chat, {"messages": CHAT, "stop": ["x"] * 100_000})
        self.refusal(400, chat, {"messages": CHAT, "logit_bias": {"99999999": 1}})
        self.refusal(400, plain, {"prompt": "x", "suffix": "y"}, param="suffix")
        self.refusal(400, plain, {"prompt": "x" * 1000}, says=["maximum context length is 256 tokens"])
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

    def test_unknown_fields_are_ignored(self):
        SERVER.post("/v1/completions", prompt="x", made_up=True, user="me", **GREEDY)


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
