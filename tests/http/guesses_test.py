#!/usr/bin/env python3
"""Guessed tokens as clients meet them: guesses_test.py CHORAL [unittest arguments]. How often they are right is told in figures; what is
answered never changes."""

import json
import pathlib
import re
import sys
import tempfile
import unittest

import served

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import scripted_model  # noqa: E402

TEMP = tempfile.TemporaryDirectory()
WORDS = ["The ", "river ", "went ", "over ", "its ", "banks ", "in ", "March ", "and ", "no ", "bridge ", "stood."]
ANSWER = "".join(WORDS)
MODEL = scripted_model.write_scripted_model(pathlib.Path(TEMP.name) / "m", {"R": WORDS})
CHAT = {"messages": [{"role": "user", "content": "R"}], "temperature": 0}
PREDICTION = {"type": "content", "content": ANSWER}
ACCEPTED, REJECTED = "accepted_prediction_tokens", "rejected_prediction_tokens"


class GuessesTest(unittest.TestCase):
    def start(self, *args):
        """A server whose first request it is: until more rows have been timed, any likely guess is worth its row."""
        server = served.Server(MODEL, *args)
        self.addCleanup(server.stop)
        return server

    def chat(self, server, **more):
        """The answer's text and the details of its usage."""
        answer = server.post("/v1/chat/completions", **CHAT, **more)
        self.assertEqual(answer["choices"][0]["message"]["content"], ANSWER)
        self.assertEqual(answer["usage"]["completion_tokens"], len(WORDS) + 1)
        return answer["usage"]["completion_tokens_details"]

    def counts(self, server):
        """Guessed tokens and those that were right, once no answer is made."""
        text = server.call("GET", "/metrics")[2]
        return tuple(int(float(re.search(rf"^vllm:spec_decode_num_{name}_total{{.*?}} (\S+)$", text, re.M)[1]))
                     for name in ("drafts", "draft_tokens", "accepted_tokens"))

    def test_a_prediction_comes_true_and_is_counted(self):
        server = self.start()
        details = self.chat(server, prediction=PREDICTION)
        self.assertGreater(details[ACCEPTED], 0)
        _, guessed, right = self.counts(server)
        self.assertEqual((details[ACCEPTED], details[REJECTED]), (right, guessed - right))
        without = self.chat(server)
        self.assertEqual((without[ACCEPTED], without[REJECTED]), (0, 0))

    def test_a_prediction_in_parts_and_in_a_stream(self):
        server = self.start()
        parts = [{"type": "text", "text": ANSWER[:20]}, {"type": "text", "text": ANSWER[20:]}]
        events = server.stream("/v1/chat/completions", **CHAT, prediction={"type": "content", "content": parts},
                               stream_options={"include_usage": True, "continuous_usage_stats": True}, timings_per_token=True)
        text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
        self.assertEqual(text, ANSWER)
        details = [event["usage"]["completion_tokens_details"] for event in events]
        self.assertEqual(details[0][ACCEPTED], 0)
        self.assertGreater(details[-1][ACCEPTED], 0)
        self.assertEqual(sorted(d[ACCEPTED] for d in details), [d[ACCEPTED] for d in details])
        timings = events[-1]["timings"]
        self.assertEqual((timings["draft_n_accepted"], timings["draft_n"]),
                         (details[-1][ACCEPTED], details[-1][ACCEPTED] + details[-1][REJECTED]))

    def test_a_wrong_prediction_changes_nothing(self):
        server = self.start()
        details = self.chat(server, prediction={"type": "content", "content": "".join(WORDS[:3] + WORDS[6:8] + WORDS[3:])})
        self.assertGreater(details[REJECTED], 0)

    def test_who_wants_no_guesses_has_none(self):
        server = self.start()
        for more in ({"speculative": False}, {"speculative.n_max": 0}, {"speculative.n_max": -1}, {"speculative": False, "speculative.n_max": 5}):
            details = self.chat(server, prediction=PREDICTION, **more)
            self.assertEqual((details[ACCEPTED], details[REJECTED]), (0, 0), more)
        server.post("/v1/completions", prompt="R", temperature=0, max_tokens=13, prediction=PREDICTION, speculative=False)
        self.assertNotIn("draft_n", server.post("/completion", prompt="R", temperature=0, prediction=PREDICTION, speculative=False)["timings"])
        server.post("/v1/responses", input="R", temperature=0, prediction=PREDICTION, speculative=False)
        server.post("/v1/messages", model="m", max_tokens=13, **CHAT, prediction=PREDICTION, speculative=False)
        server.post("/api/chat", model="m", messages=CHAT["messages"], stream=False, prediction=PREDICTION, speculative=False)
        self.assertEqual(self.counts(server), (0, 0, 0))
        self.assertGreater(self.chat(server, prediction=PREDICTION, speculative=True)[ACCEPTED], 0)

    def test_llama_cpps_bound_holds(self):
        server = self.start()
        self.chat(server, prediction=PREDICTION, **{"speculative.n_max": 1, "speculative.n_min": 0, "speculative.p_min": 0.5})
        drafts, guessed, _ = self.counts(server)
        self.assertEqual(drafts, guessed)
        self.assertGreater(drafts, 0)
        timings = self.start().post("/completion", prompt="R", temperature=0, prediction=PREDICTION)["timings"]
        self.assertGreater(timings["draft_n_accepted"], 0)

    def test_a_line_of_a_batch(self):
        server = self.start()
        line = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": {**CHAT, "prediction": PREDICTION}}
        folder = pathlib.Path(TEMP.name)
        for name, more, wanted in (("off", {"speculative": False}, self.assertEqual), ("on", {}, self.assertGreater)):
            (folder / "in.jsonl").write_text(json.dumps({**line, "body": {**line["body"], **more}}) + "\n")
            served.subprocess.run([served.CHORAL, "run-batch", "-i", folder / "in.jsonl", "-o", folder / f"{name}.jsonl", "--model", MODEL,
                                   "-q", "--threads", "2"], check=True, timeout=served.LONG)
            body = json.loads((folder / f"{name}.jsonl").read_text())["response"]["body"]
            self.assertEqual(body["choices"][0]["message"]["content"], ANSWER)
            wanted(body["usage"]["completion_tokens_details"][ACCEPTED], 0)
        self.assertEqual(self.counts(server), (0, 0, 0))

    def test_what_is_no_prediction_is_refused(self):
        server = self.start()
        for wrong in ("text", {}, {"type": "content"}, {"type": "text", "content": "a"}, {"type": "content", "content": 5},
                      {"type": "content", "content": ["a"]}, {"type": "content", "content": [{"type": "image_url", "text": "a"}]},
                      {"type": "content", "content": [{"type": "text", "text": None}]}, {"type": "content", "content": "a", "more": 1}):
            status, _, answer = server.call("POST", "/v1/chat/completions", {**CHAT, "prediction": wrong})
            self.assertEqual((status, answer["error"]["param"]), (400, "prediction"), wrong)
        status, _, answer = server.call("POST", "/v1/chat/completions", {**CHAT, "prediction": {"type": "content", "content": "ab" * 3000}})
        self.assertEqual(status, 400)
        self.assertIn("prediction: the text has more than 2048 tokens; send less of it", answer["error"]["message"])
        for wrong in ({"speculative": "no"}, {"speculative": 0}, {"speculative.n_max": "many"}):
            self.assertEqual(server.call("POST", "/v1/chat/completions", {**CHAT, **wrong})[0], 400, wrong)
        self.assertEqual(self.chat(server, prediction=None)[ACCEPTED], 0)

    def test_the_start_says_whether_tokens_are_guessed(self):
        for args, said in (((), "up to 12 tokens guessed ahead"), (("--num-speculative-tokens", "1"), "up to 1 token guessed ahead"),
                           (("--speculative", "off"), None)):
            server = self.start(*args)
            told = "".join(server.said)
            self.assertIn(said or "ready in", told)
            self.assertEqual("guessed ahead" in told, said is not None)
            self.assertEqual([slot["speculative"] for slot in server.call("GET", "/slots")[2]][0], said is not None)

    def test_each_adapter_has_its_counts(self):
        server = self.start()
        self.chat(server, prediction=PREDICTION)
        text = server.call("GET", "/metrics")[2]
        self.assertRegex(text, r'(?m)^choral:adapter_spec_decode_accepted_tokens_total{.*adapter="base".*} [1-9]')
        self.assertRegex(text, r'(?m)^choral:adapter_spec_decode_draft_tokens_total{.*adapter="base".*} [1-9]')


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main()
