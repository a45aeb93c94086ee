#!/usr/bin/env python3
"""Files and batches by OpenAI's client, and the same files answered by `choral run-batch`: batches_test.py CHORAL [unittest arguments]. Every
object and every answer must be what the client's types say, to the last field, but for our own in answers."""

import json
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import served

openai = served.need("openai")
from openai.types import Batch, Completion, CreateEmbeddingResponse, FileDeleted, FileObject  # noqa: E402
from openai.types.chat import ChatCompletion  # noqa: E402
from openai.types.responses import Response  # noqa: E402
from strict_types import forbids_others, strictly  # noqa: E402

MINE, YOURS = "sk-a-key-of-some-length", "sk-another-key-as-long"
TEMP = tempfile.TemporaryDirectory()
STATE = pathlib.Path(TEMP.name) / "state"
BATCH, FILE, DELETED = forbids_others(Batch), forbids_others(FileObject), forbids_others(FileDeleted)
FILES = SERVER = None


def start(*flags):
    return served.Server(FILES.model, "--adapter-root", FILES.root, "--max-num-seqs", 4, *flags)


def keyed():
    return start("--api-key", MINE, "--api-key", YOURS, "--state-dir", STATE)


def setUpModule():
    global FILES, SERVER
    FILES = served.Files(context=2048)
    SERVER = keyed()


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)
    TEMP.cleanup()


def client(key=MINE):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{SERVER.port}/v1", api_key=key, max_retries=0)


def raw(path, key=MINE):
    status, _, answer = SERVER.call("GET", path, headers={"Authorization": f"Bearer {key}"})
    assert status == 200, (status, answer)
    return answer


def line(custom_id, url="/v1/completions", **body):
    if url == "/v1/completions":
        body = {"prompt": f"say {custom_id}", "temperature": 0, "max_tokens": 4, **body}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def upload(lines, **more):
    text = lines if isinstance(lines, (bytes, str)) else "\n".join(json.dumps(one) for one in lines)
    return client().files.create(file=("in.jsonl", text if isinstance(text, bytes) else text.encode()), purpose="batch", **more)


def begin(lines, endpoint="/v1/completions", window="24h", **more):
    return client().batches.create(input_file_id=upload(lines).id, endpoint=endpoint, completion_window=window, **more)


def batch_now(batch_id):
    return strictly(BATCH, raw(f"/v1/batches/{batch_id}"))


def ended(batch_id, until=("completed", "failed", "expired", "cancelled")):
    for _ in range(1200):
        batch = batch_now(batch_id)
        if batch.status in until:
            return batch
        time.sleep(0.05)
    raise AssertionError(batch)


def lines_of(file_id):
    if file_id is None:
        return []
    lines = [json.loads(one) for one in client().files.content(file_id).text.strip("\n").split("\n") if one]
    for one in lines:
        assert set(one) == {"id", "custom_id", "response", "error"}, one
        assert one["id"].startswith("batch_req_")
        if one["response"] is not None:
            assert set(one["response"]) == {"status_code", "request_id", "body"} and one["error"] is None, one
    return lines


def without_names(body):
    return {key: value for key, value in body.items() if key not in ("id", "created", "created_at", "completed_at", "system_fingerprint", "adapters")}


class FilesTest(unittest.TestCase):
    def test_a_file_is_kept_shown_and_deleted(self):
        text = "{\"a\": 1}\r\n\n{}"
        made = upload(text, expires_after={"anchor": "created_at", "seconds": 7200})
        shown = strictly(FILE, raw(f"/v1/files/{made.id}"))
        self.assertEqual((shown.bytes, shown.filename, shown.purpose, shown.expires_at - shown.created_at), (len(text), "in.jsonl", "batch", 7200))
        self.assertEqual(client().files.content(made.id).content, text.encode())
        self.assertIn(made.id, [one.id for one in client().files.list(purpose="batch")])
        self.assertNotIn(made.id, [one.id for one in client().files.list(purpose="batch_output")])
        for call in (client(YOURS).files.retrieve, client(YOURS).files.content, client(YOURS).files.delete):
            with self.assertRaises(openai.NotFoundError):
                call(made.id)
        self.assertNotIn(made.id, [one.id for one in client(YOURS).files.list()])
        self.assertTrue(strictly(DELETED, client().files.delete(made.id).to_dict()).deleted)
        with self.assertRaises(openai.NotFoundError):
            client().files.content(made.id)

    def test_lists_go_on_from_page_to_page(self):
        made = [upload(f"{i}").id for i in range(5)]
        for order, want in (("asc", made), ("desc", made[::-1])):
            listed = [one.id for one in client().files.list(limit=2, order=order)]  # the client asks for all pages
            self.assertEqual([one for one in listed if one in made], want)
        for one in made:
            client().files.delete(one)

    def test_a_large_file_comes_back_to_the_byte(self):
        text = "".join(f"{i:08d}" * 100 + "\n" for i in range(3000)).encode()
        made = upload(text)
        self.assertEqual(client().files.content(made.id).content, text)
        client().files.delete(made.id)

    def test_what_is_wrong_is_named(self):
        for wrong, param in (({"purpose": "fine-tune"}, "purpose"), ({"expires_after": {"anchor": "created_at", "seconds": 5}}, "expires_after")):
            with self.assertRaises(openai.BadRequestError) as caught:
                client().files.create(**{"file": ("a", b"x"), "purpose": "batch", **wrong})
            self.assertEqual(caught.exception.param, param)
        status, _, answer = SERVER.call("POST", "/v1/files", {"file": "x"}, {"Authorization": f"Bearer {MINE}"})
        self.assertEqual((status, "multipart/form-data" in answer["error"]["message"]), (400, True))

    def test_without_a_state_directory_it_says_what_to_do(self):
        server = start()
        try:
            status, _, answer = server.call("GET", "/v1/batches")
            self.assertEqual((status, "--state-dir" in answer["error"]["message"]), (400, True), answer)
        finally:
            self.assertEqual(server.stop(), 0)


class BatchesTest(unittest.TestCase):
    def test_every_endpoint_answers_as_over_http(self):
        ask = {"model": "one", "temperature": 0}
        talk = [{"role": "user", "content": "Who are you?"}]
        for endpoint, body, kind in (("/v1/chat/completions", {**ask, "messages": talk, "max_tokens": 8}, ChatCompletion),
                                     ("/v1/completions", {**ask, "prompt": "a b", "max_tokens": 8}, Completion),
                                     ("/v1/responses", {**ask, "input": "a b", "max_output_tokens": 8}, Response),
                                     ("/v1/embeddings", {"model": "two", "input": ["a b", "c"]}, CreateEmbeddingResponse)):
            made = begin([line("a", endpoint, **body)], endpoint, metadata={"k": "v"})
            self.assertEqual((strictly(BATCH, made.to_dict()).status, made.request_counts.total), ("validating", 0))
            batch = ended(made.id)
            self.assertEqual((batch.status, batch.request_counts.completed, batch.error_file_id, batch.metadata), ("completed", 1, None, {"k": "v"}))
            self.assertLessEqual(batch.created_at, batch.in_progress_at)
            self.assertLessEqual(batch.finalizing_at, batch.completed_at)
            (got,) = lines_of(batch.output_file_id)
            self.assertEqual((got["custom_id"], got["response"]["status_code"]), ("a", 200))
            told = kind.model_validate(got["response"]["body"])
            used = got["response"]["body"]["usage"]
            self.assertEqual(batch.usage.input_tokens, used.get("prompt_tokens", used.get("input_tokens")))
            self.assertEqual(batch.usage.output_tokens, used.get("completion_tokens", used.get("output_tokens", 0)))
            self.assertEqual(batch.usage.total_tokens, used["total_tokens"])
            status, _, live = SERVER.call("POST", endpoint, body, {"Authorization": f"Bearer {MINE}"})
            self.assertEqual(status, 200, live)
            if endpoint == "/v1/responses":
                self.assertEqual(told.output_text, Response.model_validate(live).output_text)
            else:
                self.assertEqual(json.loads(json.dumps(without_names(got["response"]["body"]))), without_names(live) | {"usage": got["response"]["body"]["usage"]})
            self.assertEqual(client().files.retrieve(batch.output_file_id).purpose, "batch_output")

    def test_lines_that_fail_are_in_the_error_file_in_their_order(self):
        lines = [line(str(i), **({"temperature": -1} if i % 3 == 1 else {})) for i in range(9)]
        batch = ended(begin(lines).id)
        self.assertEqual((batch.status, batch.request_counts.model_dump()), ("completed", {"total": 9, "completed": 6, "failed": 3}))
        good, bad = lines_of(batch.output_file_id), lines_of(batch.error_file_id)
        self.assertEqual(batch.usage.total_tokens, sum(one["response"]["body"]["usage"]["total_tokens"] for one in good))
        self.assertEqual([one["custom_id"] for one in good], list("023568"))
        self.assertEqual([(one["custom_id"], one["response"]["status_code"]) for one in bad], [(i, 400) for i in "147"])
        self.assertIn("temperature", bad[0]["response"]["body"]["error"]["message"])

    def test_a_wrong_file_fails_with_the_numbers_of_its_lines(self):
        good = line("a")
        lines = [json.dumps(good), "{", json.dumps(good), json.dumps({**line("b"), "method": "GET"}), json.dumps({**line("c"), "url": "/v1/embeddings"}),
                 json.dumps(line("d", model="nobody")), json.dumps(line("e", stream=True)), "", json.dumps({"custom_id": "f"})]
        batch = ended(begin("\n".join(lines)).id)
        self.assertEqual((batch.status, batch.output_file_id, batch.errors.object), ("failed", None, "list"))
        self.assertEqual([(one.line, one.code) for one in batch.errors.data],
                         [(2, "invalid_json_line"), (3, "duplicate_custom_id"), (4, "invalid_method"), (5, "invalid_url"), (6, "model_not_found"),
                          (7, "invalid_request"), (9, "missing_required_parameter")])
        empty = ended(begin("\n \n").id)
        self.assertEqual([one.code for one in empty.errors.data], ["empty_file"])

    def test_a_key_sees_its_own(self):
        made = begin([line("a")])
        for call in (client(YOURS).batches.retrieve, client(YOURS).batches.cancel):
            with self.assertRaises(openai.NotFoundError):
                call(made.id)
        self.assertIn(made.id, [one.id for one in client().batches.list(limit=2)])
        self.assertEqual([one.id for one in client(YOURS).batches.list()], [])
        with self.assertRaises(openai.BadRequestError):
            client(YOURS).batches.create(input_file_id=made.input_file_id, endpoint="/v1/completions", completion_window="24h")
        ended(made.id)

    def test_one_that_is_cancelled_keeps_what_is_done(self):
        made = begin([line(str(i), ignore_eos=True, max_tokens=400) for i in range(300)])
        while batch_now(made.id).request_counts.completed < 2:
            time.sleep(0.02)
        with self.assertRaises(openai.BadRequestError):
            client().files.delete(made.input_file_id)
        self.assertEqual(strictly(BATCH, client().batches.cancel(made.id).to_dict()).status, "cancelling")
        batch = ended(made.id)
        self.assertEqual(batch.status, "cancelled")
        self.assertEqual(len(lines_of(batch.output_file_id)), batch.request_counts.completed)
        self.assertLess(batch.request_counts.completed, 300)
        self.assertEqual(client().batches.cancel(made.id).status, "cancelled")
        done = ended(begin([line("a")]).id)
        with self.assertRaises(openai.ConflictError):
            client().batches.cancel(done.id)

    def test_what_the_window_leaves_out_has_expired(self):
        made = begin([line(str(i), ignore_eos=True, max_tokens=400) for i in range(500)], window="1s")
        batch = ended(made.id)
        self.assertEqual((batch.status, batch.request_counts.completed + batch.request_counts.failed), ("expired", 500))
        late = lines_of(batch.error_file_id)
        self.assertEqual({one["error"]["code"] for one in late}, {"batch_expired"})
        self.assertEqual(len(late), batch.request_counts.failed)
        self.assertGreater(len(late), 0)

    def test_live_requests_go_first(self):
        made = begin([line(str(i), ignore_eos=True, max_tokens=1600) for i in range(400)])
        while batch_now(made.id).request_counts.completed < 2:
            time.sleep(0.02)
        answers, clients = [], [client() for _ in range(8)]  # made before, for that takes longer than an answer

        def live(number):
            answers.append(clients[number].completions.create(model="two", prompt=f"live {number}", max_tokens=100, temperature=0,
                                                              extra_body={"ignore_eos": True}))

        # More at a time than there are places, of which the batch has some.
        before = batch_now(made.id).request_counts.completed
        threads = [threading.Thread(target=live, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(served.LONG)
        now = batch_now(made.id)
        self.assertEqual((len(answers), now.status), (8, "in_progress"))
        # Four places: eight answers of 100 tokens are over before a dozen of 1600 could have been, had they had but their share.
        self.assertLess(now.request_counts.completed - before, 12)
        client().batches.cancel(made.id)
        ended(made.id)

    def test_a_killed_server_goes_on(self):
        global SERVER
        total = 150
        made = begin([line(str(i), ignore_eos=True, max_tokens=60, model=("base", "one", "two")[i % 3]) for i in range(total)])
        while batch_now(made.id).request_counts.completed < 5:
            time.sleep(0.02)
        self.assertEqual(SERVER.stop(signal.SIGKILL), -signal.SIGKILL)
        with sqlite3.connect(STATE / "batches.sqlite3") as db:
            (output,) = db.execute("SELECT output FROM batches WHERE id = ?", (made.id,)).fetchone()
            kept = [text for (text,) in db.execute("SELECT text FROM lines WHERE file = ?", (output,))]
        db.close()
        self.assertTrue(5 <= len(kept) < total, len(kept))
        SERVER = keyed()
        batch = ended(made.id)
        self.assertEqual((batch.status, batch.request_counts.completed), ("completed", total))
        text = client().files.content(batch.output_file_id).text
        self.assertEqual([json.loads(one)["custom_id"] for one in text.strip("\n").split("\n")], [str(i) for i in range(total)])
        for one in kept:
            self.assertIn(one, text)

    def test_a_server_that_ends_leaves_the_rest_to_the_next(self):
        global SERVER
        made = begin([line(str(i), ignore_eos=True, max_tokens=60) for i in range(150)])
        while batch_now(made.id).request_counts.completed < 2:
            time.sleep(0.02)
        begun = time.monotonic()
        self.assertEqual(SERVER.stop(), 0)
        self.assertLess(time.monotonic() - begun, 20)
        SERVER = keyed()
        batch = ended(made.id)
        self.assertEqual(batch.request_counts.model_dump(), {"total": 150, "completed": 150, "failed": 0})


class RunBatchTest(unittest.TestCase):
    def run_batch(self, lines, *flags, want=0):
        with tempfile.TemporaryDirectory() as folder:
            given, made = pathlib.Path(folder) / "in.jsonl", pathlib.Path(folder) / "out.jsonl"
            given.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines))
            done = subprocess.run([served.CHORAL, "run-batch", "-i", given, "-o", made, "--model", FILES.model, "--adapter-root", FILES.root,
                                   "--threads", "2", *flags], capture_output=True, text=True, timeout=served.LONG)
            self.assertEqual(done.returncode == 0, want == 0, done.stderr)
            return [json.loads(one) for one in made.read_text().strip("\n").split("\n") if one], done.stderr

    def test_it_answers_as_the_server_does(self):
        lines = [line(str(i), model=("base", "one", "two")[i % 3], max_tokens=12) for i in range(20)]
        batch = ended(begin(lines).id)
        mine, _ = self.run_batch(lines)
        theirs = lines_of(batch.output_file_id)
        self.assertEqual([one["custom_id"] for one in mine], [one["custom_id"] for one in theirs])
        for a, b in zip(mine, theirs):
            self.assertEqual(without_names(a["response"]["body"]) | {"usage": 0}, without_names(b["response"]["body"]) | {"usage": 0})

    def test_lines_ask_what_they_like_and_fail_alone(self):
        lines = [line("chat", "/v1/chat/completions", messages=[{"role": "user", "content": "a"}], max_tokens=3), "{", "",
                 line("rank", "/v1/rerank", query="a", documents=["b", "c"]), line("wrong", temperature=-1), line("who", model="nobody"),
                 line("vector", "/v1/embeddings", input="a")]
        answers, said = self.run_batch(lines, want=1)
        self.assertEqual([one["custom_id"] for one in answers], ["chat", None, "rank", "wrong", "who", "vector"])
        self.assertEqual([one["response"] and one["response"]["status_code"] for one in answers], [200, None, 200, 400, 404, 200])
        self.assertEqual(answers[1]["error"]["code"], "invalid_json_line")
        self.assertIn("3 of 6 requests failed, the first in line 2", said)


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    unittest.main()
