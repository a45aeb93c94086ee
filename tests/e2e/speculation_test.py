#!/usr/bin/env python3
"""Guessed tokens from the command line: speculation_test.py CHORAL [unittest arguments]. What vLLM's and llama.cpp's flags mean, and `choral
bench --speculation`, with a model that says what is written here."""

import json
import pathlib
import sys
import tempfile
import unittest

import program
import scripted_model

TEMP = tempfile.TemporaryDirectory()
HOME = pathlib.Path(TEMP.name)
WORDS = ["The ", "river ", "went ", "over ", "its ", "banks ", "in ", "March ", "and ", "no ", "bridge ", "stood."]
MODEL = scripted_model.write_scripted_model(HOME / "m", {"R": WORDS})
ONE = ("generate", MODEL, "-p", "R", "--max-tokens", "3", "--temperature", "0")
LINES = [{"id": "told", "prompt": "".join(WORDS) + "R"},
         {"prompt": "R", "prediction": {"type": "content", "content": "".join(WORDS)}, "max_tokens": 6},
         {"id": "drawn", "prompt": "RRR", "temperature": 1.5, "n": 2}]


def config(**members):
    return ("--speculative-config", json.dumps(members))


class SpeculationTest(program.ProgramTest):
    def test_configurations_of_vllm(self):
        for args, most in (((), "12 tokens"), (config(method="ngram", num_speculative_tokens=5), "5 tokens"),
                           (("--speculative-model", "[ngram]", "--num-speculative-tokens", "1"), "1 token"), (("--draft-max", "7"), "7 tokens")):
            self.assertIn(f"up to {most} guessed ahead", self.run_ok(*ONE, *args).stderr, args)
        self.assertNotIn("guessed ahead", self.run_ok(*ONE, "--speculative", "off").stderr)
        told = self.run_ok(*ONE, *config(method="ngram", prompt_lookup_max=4, prompt_lookup_min=2)).stderr
        for name in ("prompt_lookup_max 4", "prompt_lookup_min 2"):
            self.assertIn(f"choral: --speculative-config: {name} changes nothing here (the longest match", told)
        self.assertNotIn("changes nothing", self.run_ok(*ONE, "-q", *config(method="ngram", prompt_lookup_max=4)).stderr)

    def test_what_cannot_be_done_is_refused(self):
        missing = "--draft-model org/small"
        self.run_fails(3, *ONE, *config(model="org/small", num_speculative_tokens=3), says=[missing])
        self.run_fails(3, *ONE, "--speculative-model", "org/small", says=[missing])
        self.run_fails(5, *ONE, *config(method="eagle3"), says=["--speculative-config", "the method 'eagle3' is not served"])
        self.run_fails(4, *ONE, "--speculative-config", "ngram", says=["--speculative-config: not JSON"])
        for args, says in ((config(method="ngram", num_speculative_tokens=13), "--num-speculative-tokens 13: give 1 to 12"),
                           (config(methd="ngram"), "did you mean 'method'?"), 
                           ((*config(method="ngram"), "--speculative", "off"), "leave one of them out"), (("--draft-max", "0"), "give 1 to 12")):
            self.run_fails(2, *ONE, *args, says=[says])

    def test_flags_of_others(self):
        for args in (("--spec-type", "ngram-mod"), ("--spec-default",), ("--draft-min", "2"), ("--draft-p-min", "0.4"), ("--spec-ngram-size-n", "12"),
                     ("--ngram-prompt-lookup-max", "4"), ("--speculative-disable-by-batch-size", "8")):
            self.assertIn(f"choral: {' '.join(args)} changes nothing here", self.run_ok(*ONE, *args).stderr)
        for args, says in ((("--spec-type", "none"), "--speculative ngram, draft=MODEL or off"), (("--draft", "8"), "here it is --num-speculative-tokens N"),
                           (("--spec-draft-n-max", "8"), "here it is --num-speculative-tokens N"), (("-md", "x.gguf"), "--draft-model MODEL"),
                           (("--lookup-cache-static", "x"), "--speculative ngram, draft=MODEL or off")):
            self.run_fails(2, *ONE, *args, says=[f"has no flag {args[0]}", says])

    def test_what_guesses_are_worth(self):
        prompts = HOME / "prompts.jsonl"
        prompts.write_text("".join(json.dumps(line) + "\n" for line in LINES) + "\nR\n")
        page = HOME / "page.html"
        report = json.loads(self.run_ok("bench", MODEL, "--speculation", prompts, "--rounds", "2", "--batch", "1,3", "--json", "--html", page,
                                        "-q").stdout)
        found = report["speculation"]
        self.assertEqual((found["rounds"], found["answers_are_equal"]), (2, True))
        told, predicted, drawn, plain, alone, three = found["results"]
        self.assertEqual([case["name"] for case in found["results"]],
                         ["told", "line 2", "drawn", "line 5", "all, one at a time", "all, 3 at a time"])
        self.assertEqual((told["tokens"], predicted["tokens"], plain["tokens"], three["batch"]), (13, 6, 13, 3))
        for case in found["results"]:
            self.assertLessEqual(case["right_guesses"], case["guessed_tokens"])
            self.assertAlmostEqual(case["tokens_per_step"], case["tokens"] / (case["tokens"] - case["right_guesses"]))
            self.assertAlmostEqual(case["gain"], case["guessing_tokens_per_s"] / case["plain_tokens_per_s"])
        self.assertEqual(alone["tokens"], sum(case["tokens"] for case in (told, predicted, drawn, plain)))
        self.assertEqual(plain["guessed_tokens"], 0, "its prompt says nothing")
        (rows,) = [rows for _, rows in program.Page(page).tables()]
        self.assertEqual([(row["prompt"], row["tokens"]) for row in rows], [(case["name"], str(case["tokens"])) for case in found["results"]])
        text = self.run_ok("bench", MODEL, "--speculation", prompts, "--quick", "-q").stdout
        for word in ("told", "line 2", "all, one at a time", "% right", "gain", "Every answer was the same"):
            self.assertIn(word, text)

    def test_answers_that_ended_are_told_from_new_ones(self):
        """With --speculative traffic a second round's guesses are looked up in the first one's answer."""
        prompts = HOME / "traffic.jsonl"
        prompts.write_text("R\n")
        bench = ("bench", MODEL, "--speculation", prompts, "--speculative", "traffic", "-q")
        for _ in range(20):  # whether a guess pays is measured, and a busy machine may say no
            found = json.loads(self.run_ok(*bench, "--rounds", "3", "--batch", "1,2", "--json").stdout)["speculation"]["results"]
            if found[1]["right_guesses"] > 0:
                break
        self.assertEqual([(case["name"], case["answer_heard_before"]) for case in found],
                         [("line 1", False), ("line 1", True), ("all, 2 at a time", False), ("all, 2 at a time", True)])
        self.assertEqual((found[0]["guessed_tokens"], found[0]["tokens"], found[1]["tokens"]), (0, 13, 13))
        self.assertGreater(found[1]["right_guesses"], 0)
        text = self.run_ok(*bench, "--rounds", "2").stdout
        for word in ("line 1, new", "line 1, again", "the very answer had been made before"):
            self.assertIn(word, " ".join(text.split()))
        only_new = json.loads(self.run_ok(*bench, "--rounds", "1", "--json").stdout)["speculation"]["results"]
        self.assertEqual([case["answer_heard_before"] for case in only_new], [False])

    def test_what_cannot_be_compared_is_told(self):
        prompts = HOME / "wrong.jsonl"
        for line, says in (('{"prompt": "x", "speculative": false}', "wrong.jsonl, line 1: whether tokens are guessed"),
                           ('{"prompt": "x", "embedding": true}', "asks for no answer"), ('{"promt": "x"}', "did you mean 'prompt'"), ("", "no prompts")):
            prompts.write_text(line + "\n")
            self.run_fails(2, "bench", MODEL, "--speculation", prompts, says=[says])
        prompts.write_text("x\n")
        self.run_fails(3, "bench", MODEL, "--speculation", HOME / "absent", says=["absent"])
        self.run_fails(2, "bench", MODEL, "--speculation", prompts, "--speculative", "off", says=["this engine guesses no tokens"])
        self.run_fails(2, "bench", MODEL, "--speculation", prompts, "--adapters", "2", says=["times no steps"])
        self.run_fails(2, "bench", MODEL, "--speculation", prompts, "--rounds", "0", says=["--rounds 0: give 1 to 1000"])


if __name__ == "__main__":
    program.CHORAL = sys.argv.pop(1)
    unittest.main()
