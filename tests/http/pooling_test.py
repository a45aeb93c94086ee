#!/usr/bin/env python3
"""Classes and vectors of models that give no text, by vLLM's description of its routes: pooling_test.py CHORAL [unittest arguments]."""

import base64
import json
import math
import pathlib
import struct
import sys
import unittest

import served

POOLED = pathlib.Path(__file__).resolve().parents[1] / "data/pooled"
LABELS = ["bad", "so-so", "good"]
TEXTS = ["A bear.", "What a fine day it is", "x"]


def softmax(values):
    largest = max(values)
    powers = [math.exp(value - largest) for value in values]
    return [power / sum(powers) for power in powers]


class PoolingTest(unittest.TestCase):
    def start(self, name, *args):
        server = served.Server(str(POOLED / name), "--lora", f"it={POOLED / name / 'adapter'}", *args)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def goldens(self, name, adapter=False):
        lines = [json.loads(line) for line in (POOLED / "goldens.jsonl").open()]
        return [line for line in lines if line["model"] == name and line.get("adapter", False) == adapter]

    def near(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        for a, b in zip(got, wanted):
            self.assertAlmostEqual(a, b, delta=1e-4)

    def test_classes_have_labels_and_probabilities(self):
        server = self.start("classes")
        for model, adapter in (("classes", False), ("it", True)):
            goldens = self.goldens("classes", adapter)
            got = server.post("/classify", model=model, input=[golden["prompt_token_ids"] for golden in goldens])
            self.assertEqual((got["object"], got["model"], got["id"].split("-")[0]), ("list", model, "classify"))
            self.assertEqual(got["usage"]["prompt_tokens"], sum(len(golden["prompt_token_ids"]) for golden in goldens))
            self.assertEqual([entry["index"] for entry in got["data"]], list(range(len(goldens))))
            for entry, golden in zip(got["data"], goldens):
                self.assertEqual(set(entry), {"index", "label", "probs", "num_classes"})
                wanted = softmax(golden["classes"])
                self.near(entry["probs"], wanted)
                self.assertEqual((entry["label"], entry["num_classes"]), (LABELS[wanted.index(max(wanted))], 3))
            logits = server.post("/classify", model=model, input=goldens[0]["prompt_token_ids"], use_activation=False)["data"]
            self.near(logits[0]["probs"], goldens[0]["classes"])
        one = server.post("/v1/classify", input=TEXTS[0])["data"]
        self.assertEqual(one[0], server.post("/classify", input=TEXTS)["data"][0])

    def test_pooling_gives_what_the_model_gives(self):
        server = self.start("classes")
        probs = [entry["probs"] for entry in server.post("/classify", input=TEXTS)["data"]]
        vectors = [entry["embedding"] for entry in server.post("/v1/embeddings", input=TEXTS)["data"]]
        got = server.post("/pooling", input=TEXTS)
        self.assertEqual(got["id"].split("-")[0], "pool")
        self.assertEqual(got["data"], [{"index": i, "object": "pooling", "data": probs[i]} for i in range(3)])
        self.assertEqual([entry["data"] for entry in server.post("/pooling", input=TEXTS, task="classify")["data"]], probs)
        self.assertEqual([entry["data"] for entry in server.post("/pooling", input=TEXTS, task="embed")["data"]], vectors)
        packed = server.post("/pooling", input=TEXTS[0], task="embed", encoding_format="base64")["data"][0]["data"]
        self.assertEqual(list(struct.unpack(f"<{len(vectors[0])}f", base64.b64decode(packed))),
                         [struct.unpack("<f", struct.pack("<f", value))[0] for value in vectors[0]])

    def test_an_embedder_gives_vectors_that_may_be_cut(self):
        server = self.start("embedder")
        for model, adapter in (("embedder", False), ("it", True)):
            goldens = self.goldens("embedder", adapter)
            got = server.post("/v1/embeddings", model=model, input=[golden["prompt_token_ids"] for golden in goldens])["data"]
            for entry, golden in zip(got, goldens):
                self.near(entry["embedding"], golden["embedding"])
        whole = server.post("/v1/embeddings", input=TEXTS[1])["data"][0]["embedding"]
        for path, field in (("/v1/embeddings", "embedding"), ("/pooling", "data")):
            cut = server.post(path, input=TEXTS[1], dimensions=6)["data"][0][field]
            length = math.sqrt(sum(value * value for value in whole[:6]))
            self.near(cut, [value / length for value in whole[:6]])
        for dimensions in (0, -1, 25, "6"):
            self.assertEqual(server.call("POST", "/v1/embeddings", {"input": "x", "dimensions": dimensions})[0], 400, dimensions)

    def test_a_head_of_one_class_scores_pairs(self):
        server = self.start("reranker")
        ids = [server.post("/tokenize", prompt=text)["tokens"] for text in TEXTS]
        bare = [server.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"] for text in TEXTS]
        for model in ("reranker", "it"):
            wanted = [entry["probs"][0] for entry in server.post("/classify", model=model, input=[ids[0] + text for text in bare])["data"]]
            got = server.post("/score", model=model, text_1=TEXTS[0], text_2=TEXTS)["data"]
            self.assertEqual([entry["score"] for entry in got], wanted)
            ranked = server.post("/rerank", model=model, query=TEXTS[0], documents=TEXTS)["results"]
            self.assertEqual([result["relevance_score"] for result in ranked], sorted(wanted, reverse=True))
        self.assertEqual(server.post("/classify", input="x")["data"][0]["label"], "LABEL_0")

    def test_what_a_model_cannot_give_is_refused(self):
        classifier, embedder = self.start("classes"), self.start("embedder")
        for server, path, body, says in (
                (classifier, "/v1/completions", {"prompt": "x"}, "gives no text"),
                (classifier, "/v1/embeddings", {"input": "x", "dimensions": 4}, "may be cut"),
                (classifier, "/pooling", {"input": "x", "task": "token_embed"}, "token_embed"),
                (classifier, "/classify", {}, "'input' is missing"),
                (classifier, "/classify", {"messages": []}, "messages"),
                (embedder, "/classify", {"input": "x"}, "no head of classes"),
                (embedder, "/v1/completions", {"prompt": "x"}, "gives no text")):
            status, _, answer = server.call("POST", path, body)
            self.assertEqual(status, 400, path)
            self.assertIn(says, answer["error"]["message"])


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
