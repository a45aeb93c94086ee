#!/usr/bin/env python3
"""Reranking and scores, by the descriptions of Jina, Cohere, vLLM and text-embeddings-inference: ranking_test.py CHORAL [unittest
arguments]."""

import math
import os
import sys
import unittest

import served

FILES = served.Files(context=1024)
DOCUMENTS = ["A bear.", "The capital of France is Paris.", "zzz", "A bear."]


class RankingTest(unittest.TestCase):
    def start(self, *args, files=FILES):
        server = served.Server(files.model, *args)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def cosines(self, server, left, right, **more):
        vectors = [entry["embedding"] for entry in server.post("/v1/embeddings", input=[left, *right], **more)["data"]]
        return [sum(a * b for a, b in zip(vectors[0], vector)) for vector in vectors[1:]]

    def test_vectors_are_compared_by_their_angle(self):
        server = self.start("--lora", f"one={FILES.root / 'one'}")
        for model in ("tiny", "one"):
            wanted = self.cosines(server, "What is a bear?", DOCUMENTS, model=model)
            got = server.post("/v1/rerank", model=model, query="What is a bear?", documents=DOCUMENTS)
            self.assertEqual(sorted(got), ["id", "model", "object", "results", "usage"])
            self.assertEqual((got["object"], got["model"], got["id"].split("-")[0]), ("list", model, "rerank"))
            count = sum(len(text) for text in ("What is a bear?", *DOCUMENTS))
            self.assertEqual(got["usage"], {"prompt_tokens": count, "total_tokens": count})
            self.assertEqual(sorted(result["index"] for result in got["results"]), [0, 1, 2, 3])
            for result in got["results"]:
                self.assertEqual(sorted(result), ["document", "index", "relevance_score"])
                self.assertEqual(result["document"], {"text": DOCUMENTS[result["index"]]})
                self.assertAlmostEqual(result["relevance_score"], wanted[result["index"]], places=5)
            scores = [result["relevance_score"] for result in got["results"]]
            self.assertEqual(scores, sorted(scores, reverse=True))
            equal = [result["index"] for result in got["results"] if result["index"] in (0, 3)]
            self.assertEqual(equal, [0, 3], "equal ones in their order")

    def test_every_way_to_ask(self):
        server = self.start()
        body = {"query": "bear", "documents": DOCUMENTS}
        whole = server.post("/v1/rerank", **body)["results"]
        for path in ("/rerank", "/reranking", "/v1/reranking", "/v2/rerank"):
            self.assertEqual(server.post(path, **body)["results"], whole, path)
        for top_n, count in ((1, 1), (4, 4), (99, 4)):
            self.assertEqual(server.post("/rerank", top_n=top_n, **body)["results"], whole[:count])
        bare = server.post("/rerank", return_documents=False, **body)["results"]
        self.assertEqual(bare, [{"index": r["index"], "relevance_score": r["relevance_score"]} for r in whole])
        plain = [{"index": r["index"], "score": r["relevance_score"]} for r in whole]
        self.assertEqual(server.post("/rerank", query="bear", texts=DOCUMENTS), plain)
        told = server.post("/rerank", query="bear", texts=DOCUMENTS, return_text=True)
        self.assertEqual(told, [{**entry, "text": DOCUMENTS[entry["index"]]} for entry in plain])
        objects = [{"text": text} for text in DOCUMENTS]
        self.assertEqual(server.post("/rerank", query="bear", documents=objects)["results"], whole)

    def test_scores(self):
        server = self.start()
        wanted = self.cosines(server, "bear", DOCUMENTS)
        got = server.post("/v1/score", text_1="bear", text_2=DOCUMENTS)
        self.assertEqual(sorted(got), ["created", "data", "id", "model", "object", "usage"])
        for i, entry in enumerate(got["data"]):
            self.assertEqual(sorted(entry), ["index", "object", "score"])
            self.assertEqual((entry["index"], entry["object"]), (i, "score"))
            self.assertAlmostEqual(entry["score"], wanted[i], places=5)
        pairs = server.post("/score", text_1=["bear"] * 4, text_2=DOCUMENTS)["data"]
        self.assertEqual(pairs, got["data"])
        self.assertEqual(server.post("/score", text_1=DOCUMENTS, text_2="bear")["data"], got["data"])

    def test_chat_models_say_yes_or_no(self):
        server = self.start("--score-by", "yes-no")
        status, _, answer = server.call("POST", "/rerank", {"query": "q", "documents": ["d"]})
        self.assertEqual((status, answer["error"]["code"]), (400, "unsupported"))
        self.assertIn("'yes' is 3 tokens", answer["error"]["message"])

    def test_what_is_wrong(self):
        server = self.start()
        good = {"query": "q", "documents": ["d"]}
        for path, body, says in (("/rerank", {"query": "q"}, "documents"), ("/rerank", {"documents": ["d"]}, "query"),
                                 ("/rerank", {**good, "documents": []}, "documents"), ("/rerank", {**good, "documents": ["x", 2]}, "documents[1]"),
                                 ("/rerank", {**good, "documents": "d"}, "documents"), ("/rerank", {**good, "top_n": 0}, "top_n"),
                                 ("/rerank", {**good, "documents": [{"image": "x"}]}, "image"), ("/rerank", {**good, "max_tokens_per_doc": 4}, "max_tokens_per_doc"),
                                 ("/rerank", {**good, "instruction": "x"}, "--score-by"), ("/rerank", {**good, "query": "q" * 2000}, "tokens"),
                                 ("/rerank", {**good, "query": ""}, "no tokens"), ("/score", {"text_1": "a"}, "text_2"),
                                 ("/score", {"text_1": ["a", "b"], "text_2": ["c", "d", "e"]}, "stand against")):
            status, _, answer = server.call("POST", path, body)
            self.assertEqual(status, 400, body)
            self.assertIn(says, answer["error"]["message"])
        self.assertEqual(server.call("POST", "/rerank", {**good, "model": "nobody"})[0], 404)
        status, _, answer = server.call("POST", "/classify", {"input": "x"})
        self.assertEqual(status, 400)
        self.assertIn("no head of classes", answer["error"]["message"])


@unittest.skipUnless(os.environ.get("CHORAL_DEMO_MODEL"), "needs the demo's model")
class DemoModelTest(unittest.TestCase):
    """A model whose vocabulary has the words; it was never trained to judge, so its numbers mean nothing."""

    def test_the_share_of_yes_is_that_of_its_next_word(self):
        model = os.environ["CHORAL_DEMO_MODEL"]
        server = served.Server(model, "--score-by", "yes-no")
        self.addCleanup(server.stop)
        judge = ('Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be '
                 '"yes" or "no".')
        yes, no = (server.post("/tokenize", content=word)["tokens"][0] for word in ("yes", "no"))
        for instruction in ("Given a web search query, retrieve relevant passages that answer the query", "Find the animal"):
            more = {} if "web" in instruction else {"instruction": instruction}
            got = server.post("/rerank", query="bear", documents=["A bear.", "Paris"], **more)
            for result in got["results"]:
                text = f"<Instruct>: {instruction}\n<Query>: bear\n<Document>: {result['document']['text']}"
                messages = [{"role": "system", "content": judge}, {"role": "user", "content": text}]
                chat = server.post("/v1/chat/completions", messages=messages, max_tokens=1, temperature=0, logprobs=True, logprob_token_ids=[yes, no])
                by_token = {t["token"]: t["logprob"] for t in chat["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
                wanted = math.exp(by_token["yes"]) / (math.exp(by_token["yes"]) + math.exp(by_token["no"]))
                self.assertAlmostEqual(result["relevance_score"], wanted, places=5)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
