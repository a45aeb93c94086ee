#!/usr/bin/env python3
"""The console in a browser, over a real server: browser_test.py CHORAL [unittest arguments]. What it does when something goes wrong is in
browser_faults_test.py."""

import contextlib
import json
import math
import re
import sys
import time
import unittest

import browser
import served

axe = served.need("axe_playwright_python.sync_playwright")

FILES = served.Files(context=4096)
SERVER = None
VIEWS = ("chat", "compare", "adapters", "engine")


def setUpModule():
    global SERVER
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root, "--state-dir", FILES.folder / "state", "--store-adapters", "1M")


def tearDownModule():
    assert SERVER.stop() == 0, "".join(SERVER.said)


def chats_file(*chats):
    return {"name": "chats.json", "mimeType": "application/json",
            "buffer": json.dumps({"format": "choral-chats", "version": 1, "chats": chats}).encode()}


def long_chat(count):
    messages = {str(i): {"id": str(i), "parent": str(i - 1) if i else None, "role": "assistant" if i % 2 else "user",
                         "content": f"**message** {i}"} for i in range(count)}
    return {"id": "long", "title": "A long one", "changed": 1, "messages": messages, "leaf": str(count - 1), "voice": [], "system": "",
            "sampling": {}, "tools": ""}


class Console(browser.BrowserTest):
    def start(self, view="", **options):
        return self.open(SERVER.port, view, **options)


class CompareTest(Console):
    def ask(self, page):
        page.get_by_role("button", name="Ask all").click()
        page.get_by_text("Which answer is best?").wait_for()

    def test_two_clicks_compare_all_adapters(self):
        page = self.start()
        page.get_by_role("navigation").get_by_role("link", name="Compare").click()
        self.ask(page)
        bodies = self.bodies()
        self.assertEqual([body["model"] for body in bodies], ["base", "one", "two"])
        self.assertEqual({(body["seed"], body["top_logprobs"]) for body in bodies}, {(1, 5)})
        for i, name in enumerate(("base", "one", "two")):
            pane = page.get_by_label(f"Pane {name}")
            self.assertEqual(pane.locator(".token").count() > 3, True)
            self.assertEqual(pane.locator(".token.differs").count(), 1, name)
            self.assertEqual(pane.locator("[class*=shade-]").count() > 0, True)
            answer = SERVER.post("/v1/chat/completions", **{k: v for k, v in bodies[i].items() if "stream" not in k})
            ids = page.get_by_label(f"Pane {name}").locator(".faint").first.inner_text()
            self.assertIn(f"{answer['usage']['completion_tokens']} tokens", ids)

    def test_the_likeliest_tokens_of_both(self):
        page = self.start("#compare")
        self.ask(page)
        page.get_by_label("Pane one").locator(".token.differs").hover()
        card = page.locator(".token-card")
        self.assertEqual(card.locator("h3").all_inner_texts(), ["one", "base"])
        self.assertEqual(card.locator("li").count(), 10)
        page.mouse.move(0, 0)
        page.get_by_role("group", name="Tokens of two").focus()
        page.keyboard.press("ArrowRight")
        self.assertEqual(card.count(), 1)
        first = card.locator("p").first.inner_text()
        page.keyboard.press("ArrowRight")
        self.assertNotEqual(card.locator("p").first.inner_text(), first)
        page.keyboard.press("Escape")
        self.assertEqual(card.count(), 0)

    def test_a_replay_is_the_same(self):
        page = self.start("#compare")
        page.get_by_text("System prompt and sampling").click()
        page.get_by_label("Temperature").fill("1.3")
        page.get_by_label("Seed").fill("7")
        self.ask(page)
        page.get_by_label("Pane two").get_by_role("button", name="Replay").click()
        self.assertIn("✓ The same", page.locator(".proof, .problem").first.inner_text())
        self.assertEqual(self.bodies()[-1], self.bodies()[2])
        self.assertEqual(self.bodies()[-1]["seed"], 7)

    def test_a_replay_of_another_content_is_told(self):
        page = self.start("#compare")
        self.ask(page)
        page.route("**/chat/completions", lambda route: route.continue_(post_data=json.dumps({**route.request.post_data_json, "model": "one"})))
        page.get_by_label("Pane two").get_by_role("button", name="Replay").click()
        page.get_by_text("✗ Another answer from token").wait_for()

    def test_mixes_with_factors(self):
        page = self.start("#compare")
        pane = page.get_by_label("Pane one")
        pane.get_by_text("Voice: one").click()
        pane.get_by_role("button", name="mix another in").click()
        mixed = page.locator(".pane").nth(1)
        mixed.get_by_label("Factor of two", exact=True).fill("0.35")
        mixed.get_by_label("Factor of one, slider").fill("0.5")
        page.get_by_role("heading", name="one × 0.5 + two × 0.35").wait_for()
        self.ask(page)
        self.assertEqual(self.bodies()[1]["lora"], [{"name": "one", "scale": 0.5}, {"name": "two", "scale": 0.35}])
        page.reload()
        page.get_by_role("heading", name="one × 0.5 + two × 0.35").wait_for()

    def test_blind_votes(self):
        page = self.start("#compare")
        page.get_by_label("Blind").check()
        self.ask(page)
        self.assertEqual(page.locator(".pane h2").all_inner_texts(), ["A", "B", "C"])
        self.assertNotIn("one", page.locator(".panes").inner_text().split())
        page.get_by_role("button", name="B is best").click()
        names = page.locator(".pane h2").all_inner_texts()
        self.assertEqual(sorted(names), ["base", "one", "two"])
        table = page.get_by_role("region", name="Ratings").locator("tbody tr")
        self.assertTrue(table.nth(0).inner_text().startswith(names[1]))
        with page.expect_download() as download:
            page.get_by_role("button", name="Export as preference pairs").click()
        pairs = [json.loads(line) for line in download.value.path().read_text().splitlines()]
        self.assertEqual({pair["chosen_model"] for pair in pairs}, {names[1]})
        self.assertEqual(sorted(pair["rejected_model"] for pair in pairs), sorted(n for n in names if n != names[1]))
        for pair in pairs:
            self.assertEqual(pair["prompt"], [{"role": "user", "content": "What is the capital of France?"}])
            self.assertEqual([m["role"] for m in pair["chosen"] + pair["rejected"]], ["assistant", "assistant"])
        page.reload()
        page.get_by_role("heading", name="Votes: 1").wait_for()
        page.get_by_role("button", name="Delete the votes").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_text("No votes yet").wait_for()

    def test_panes_come_and_go(self):
        page = self.start("#compare")
        page.get_by_role("button", name="two", exact=True).click()
        self.assertEqual(page.locator(".pane").count(), 2)
        for _ in range(5):
            page.get_by_role("button", name="+ pane").click()
        self.assertEqual(page.locator(".pane").count(), 7)
        self.assertTrue(page.get_by_role("button", name="+ pane").is_disabled())
        for _ in range(3):
            page.get_by_role("button", name="Remove the pane base").last.click()
        self.ask(page)
        self.assertEqual(len(self.bodies()), 4)


class ChatTest(Console):
    def test_branches(self):
        page = self.start()
        self.say(page, "First question")
        page.get_by_role("button", name="Answer again").click()
        page.get_by_text("2 / 2").wait_for()
        page.get_by_role("button", name="Branch before").click()
        page.get_by_text("1 / 2").wait_for()
        page.get_by_role("button", name="Edit, as a new branch").click()
        page.get_by_label("Edit the message").fill("Second question")
        page.get_by_role("button", name="Ask this").click()
        page.locator(".message.assistant .message-foot").wait_for()
        self.assertEqual(self.bodies()[-1]["messages"], [{"role": "user", "content": "Second question"}])
        page.locator(".message.user").get_by_role("button", name="Branch before").click()
        self.assertEqual(page.locator(".message.user .plain").inner_text(), "First question")
        self.say(page, "And then?")
        self.assertEqual([m["role"] for m in self.bodies()[-1]["messages"]], ["user", "assistant", "user"])

    def test_history_is_kept_found_and_moved(self):
        page = self.start()
        self.say(page, "About zebras")
        page.get_by_role("button", name="New chat").click()
        self.say(page, "About lions")
        page.reload()
        page.locator(".message.assistant").wait_for()
        self.assertEqual(page.locator(".chat-link").all_inner_texts(), ["About lions", "About zebras"])
        page.keyboard.press("Control+k")
        page.keyboard.type("ZEBRA")
        page.get_by_role("button", name="About zebras", exact=True).click()
        self.assertEqual(page.locator(".chat-list li").count(), 1)
        page.get_by_label("Search the chats").fill("")
        with page.expect_download() as download:
            page.get_by_role("button", name="Export").click()
        exported = json.loads(download.value.path().read_text())
        self.assertEqual({chat["title"] for chat in exported["chats"]}, {"About lions", "About zebras"})
        other = self.start()
        other.get_by_label("Import chats").set_input_files(chats_file(*exported["chats"]))
        other.get_by_text("2 chats were imported").wait_for()
        self.assertEqual(other.locator(".chat-link").count(), 2)
        other.get_by_label("Import chats").set_input_files(chats_file(*exported["chats"]))
        other.get_by_text("0 chats were imported; 2 are here already").wait_for()
        other.get_by_role("button", name="Delete About lions").click()
        other.get_by_role("button", name="Delete", exact=True).click()
        self.assertEqual(other.locator(".chat-link").all_inner_texts(), ["About zebras"])
        other.reload()
        other.locator(".message.user").wait_for()
        self.assertEqual(other.locator(".chat-link").count(), 1)

    def test_what_is_no_export_is_refused(self):
        page = self.start()
        circle = {**long_chat(2), "messages": {"0": {"id": "0", "parent": "1", "role": "user", "content": "a"},
                                               "1": {"id": "1", "parent": "0", "role": "user", "content": "b"}}, "leaf": "1"}
        for chat, why in (({}, "damaged"), (circle, "damaged"), ({**long_chat(2), "leaf": "9"}, "damaged")):
            page.get_by_label("Import chats").set_input_files(chats_file(chat))
            page.get_by_role("alert").filter(has_text=why).wait_for()
            page.get_by_role("button", name="Dismiss").click()
        page.get_by_label("Import chats").set_input_files({"name": "x.json", "mimeType": "application/json", "buffer": b"{"})
        page.get_by_role("alert").filter(has_text="not JSON").wait_for()

    def test_settings_are_sent(self):
        page = self.start()
        page.get_by_role("button", name="Voice, system prompt and sampling").click()
        page.get_by_label("System prompt", exact=True).fill("Be brief.")
        for label, value in (("Temperature", "0.5"), ("Top p", "0.9"), ("Top k", "20"), ("Min p", "0.1"), ("Repetition penalty", "1.1"),
                             ("Most tokens", "9"), ("Seed", "3")):
            page.get_by_label(label).fill(value)
        page.get_by_label("Who answers", exact=True).select_option("two")
        self.say(page, "Hello")
        body = self.bodies()[-1]
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be brief."})
        self.assertEqual({k: body[k] for k in body if k not in ("messages", "stream", "stream_options")},
                         {"model": "two", "temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1,
                          "max_tokens": 9, "seed": 3})
        self.assertIn("9 tokens", page.locator(".message.assistant .message-foot").inner_text())
        page.get_by_label("Temperature").fill("")
        self.say(page, "Again")
        self.assertNotIn("temperature", self.bodies()[-1])

    def test_texts_are_attached(self):
        page = self.start()
        files = page.get_by_label("Attach texts").last
        files.set_input_files({"name": "list.txt", "mimeType": "text/plain", "buffer": "naïve list".encode()})
        page.get_by_text("list.txt").wait_for()
        self.say(page, "Read this")
        self.assertIn("naïve list", self.bodies()[-1]["messages"][0]["content"])
        files.set_input_files({"name": "a.bin", "mimeType": "text/plain", "buffer": b"\xff\xfe\x00"})
        page.get_by_role("alert").filter(has_text="no text").wait_for()

    def test_a_thousand_messages(self):
        page = self.start()
        begin = time.monotonic()
        page.get_by_label("Import chats").set_input_files(chats_file(long_chat(1000)))
        page.get_by_text("message 999").wait_for()
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(page.locator("article").count(), 60)
        page.get_by_role("button", name="Show earlier messages (940)").click()
        self.assertEqual(page.locator("article").count(), 120)


class AdaptersTest(Console):
    def test_pin_load_compare_and_unload(self):
        page = self.start("#adapters")
        page.get_by_role("button", name="Pin one").click()
        page.get_by_text("one stays in memory").wait_for()
        row = page.get_by_role("row").filter(has_text="one")
        self.assertIn("resident", row.first.inner_text())
        page.get_by_role("button", name="Unpin one").click()
        page.get_by_text("one may leave the memory").wait_for()
        form = page.get_by_role("form", name="Load an adapter")
        form.get_by_label("Name", exact=True).fill("late")
        form.get_by_label("Path").fill("two")
        form.get_by_role("button", name="Load").click()
        page.get_by_text("late was loaded").wait_for()
        form.get_by_role("button", name="Load").click()  # not in place
        self.may_fail = True
        page.get_by_role("alert").filter(has_text="already loaded").wait_for()
        page.get_by_label("Choose late").check()
        page.get_by_label("Choose one").check()
        diff = page.get_by_label("Two adapters beside each other")
        self.assertEqual(diff.locator("h2").inner_text(), "late and one")
        self.assertTrue(diff.locator("tr.changed").count() > 0)
        page.get_by_label("Filter by name").fill("LAT")
        self.assertEqual(page.get_by_role("button", name="Unload").count(), 1)
        page.get_by_role("button", name="Unload late").click()
        page.get_by_role("button", name="Unload", exact=True).click()
        page.get_by_text("late was unloaded").wait_for()
        self.assertIn("expected_generation", self.bodies("v1/unload_lora_adapter")[0])

    def test_effect_by_layer(self):
        page = self.start("#adapters")
        page.get_by_role("button", name="Effect of one by layer").click()
        shown = page.get_by_role("region", name="Effect of one by layer")
        shown.wait_for()
        self.assertEqual(shown.locator("tbody th").all_inner_texts(), ["self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"])
        self.assertEqual(shown.get_by_role("columnheader", name="layer 1").count(), 1)
        modules = SERVER.call("GET", "/v1/lora_adapters/one/effect")[2]["modules"]
        self.assertEqual(shown.locator("td.heat").count(), len(modules))
        self.check_heat(shown, modules, max(module["norm"] for module in modules))
        page.get_by_label("Numbers").check()
        shown.get_by_text(f"{modules[0]['norm']:.2g}", exact=True).first.wait_for()
        page.get_by_role("button", name="Effect of two by layer").click()
        of_two = page.get_by_role("region", name="Effect of two by layer")
        of_two.wait_for()
        others = SERVER.call("GET", "/v1/lora_adapters/two/effect")[2]["modules"]
        most = max(module["norm"] for module in modules + others)  # one scale for both
        self.check_heat(shown, modules, most)
        self.check_heat(of_two, others, most)
        page.get_by_role("button", name="Close the effects").click()
        self.assertEqual(page.locator(".heat-map").count(), 0)

    def check_heat(self, shown, modules, most):
        """Each module has a square that says what it is, as hot as its norm."""
        norms = {module["module"]: module["norm"] for module in modules}
        for cell in shown.locator("td.heat").all():
            part, layer, norm, kind, rank = re.fullmatch(r"(.*), layer (\d+): ‖B·A‖ ([\d.]+), (\w+), rank (\d+)", cell.get_attribute("title")).groups()
            expected = norms.pop(f"model.layers.{layer}.{part}")
            self.assertAlmostEqual(float(norm), expected, delta=expected / 1000)
            self.assertIn(f"heat-{math.ceil(expected / most * 10)}", cell.get_attribute("class").split())
            self.assertEqual((kind, rank), ("LoRA", "4"))
        self.assertEqual(norms, {})

    def drop(self, page, *files):
        """Drops files of these names and bytes."""
        data = page.evaluate_handle("""files => {
            const data = new DataTransfer();
            for (const [name, bytes] of files) data.items.add(new File([new Uint8Array(bytes)], name));
            return data;
        }""", [[name, list(content)] for name, content in files])
        page.locator(".adapters-view").dispatch_event("drop", {"dataTransfer": data})

    def unloaded(self, page, name):
        page.get_by_role("button", name=f"Unload {name}").click()
        page.get_by_role("button", name="Unload", exact=True).click()
        page.get_by_text(f"{name} was unloaded").wait_for()

    def test_a_folder_is_sent(self):
        page = self.start("#adapters")
        (FILES.root / "one" / "README.md").write_text("An adapter.")
        page.get_by_label("Choose a folder").set_input_files(FILES.root / "one")
        form = page.get_by_role("form", name="Send an adapter")
        form.get_by_text("Left out: README.md").wait_for()
        self.assertEqual(form.get_by_label("Name", exact=True).input_value(), "one")
        form.get_by_role("button", name="Send and load").click()
        form.get_by_role("alert").filter(has_text="There is an adapter one already").wait_for()
        form.get_by_label("Name", exact=True).fill("sent")
        form.get_by_role("button", name="Send and load").click()
        page.get_by_text("sent was sent and loaded").wait_for()
        greedy = {"prompt": "Hello", "temperature": 0, "max_tokens": 8}
        answers = [SERVER.post("/v1/completions", model=name, **greedy)["choices"][0]["text"] for name in ("one", "sent")]
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(form.get_by_role("button", name="Send and load").count(), 0)
        self.unloaded(page, "sent")

    def test_weights_alone_are_sent_when_their_alpha_is_given(self):
        page = self.start("#adapters")
        page.get_by_role("form", name="Send an adapter").wait_for()
        self.drop(page, ("mine.safetensors", (FILES.root / "two" / "adapter_model.safetensors").read_bytes()))
        form = page.get_by_role("form", name="Send an adapter")
        form.get_by_text("Its rank (4)").wait_for()
        form.get_by_label("α (lora_alpha)").fill("8")
        form.get_by_role("button", name="Send and load").click()
        page.get_by_text("mine was sent and loaded").wait_for()
        SERVER.post("/v1/pin_lora_adapter", lora_name="two")
        SERVER.post("/v1/unpin_lora_adapter", lora_name="two")
        adapters = {a["name"]: a for a in SERVER.call("GET", "/v1/lora_adapters")[2]["data"]}
        self.assertEqual(adapters["mine"]["digest"], adapters["two"]["digest"])
        self.unloaded(page, "mine")

    def test_what_cannot_be_sent_is_told(self):
        page = self.start("#adapters")
        page.get_by_role("form", name="Send an adapter").wait_for()
        weights = (FILES.root / "two" / "adapter_model.safetensors").read_bytes()
        for files, why in (([("notes.txt", b"hello")], "There is no adapter_model.safetensors"),
                           ([("a.safetensors", b"short")], "it is no safetensors file"),
                           ([("a.safetensors", b"\x08" + bytes(7) + b"{nojson}" + bytes(8))], "the file is damaged"),
                           ([("a.safetensors", weights), ("b.safetensors", weights)], "one adapter at a time")):
            self.drop(page, *files)
            page.get_by_role("alert").filter(has_text=why).wait_for()
            page.get_by_role("button", name="Dismiss").click()
        self.may_fail = True  # the server's own no
        self.drop(page, ("adapter_config.json", b"{"), ("adapter_model.safetensors", weights))
        form = page.get_by_role("form", name="Send an adapter")
        form.get_by_label("Name", exact=True).fill("broken")
        form.get_by_role("button", name="Send and load").click()
        page.get_by_role("alert").filter(has_text="adapter_config.json: broken JSON").wait_for()
        form.get_by_role("button", name="Not these").click()
        self.assertEqual(SERVER.call("GET", "/v1/lora_adapters")[2]["uploads"]["held_bytes"], 0)

    def test_sending_can_be_stopped(self):
        page = self.start("#adapters")
        page.get_by_role("form", name="Send an adapter").wait_for()
        self.may_fail = True
        page.route("**/adapter_uploads/*/*", lambda route: None)  # never answered
        self.drop(page, *((name, (FILES.root / "two" / name).read_bytes()) for name in ("adapter_config.json", "adapter_model.safetensors")))
        form = page.get_by_role("form", name="Send an adapter")
        form.get_by_label("Name", exact=True).fill("stopped")
        form.get_by_role("button", name="Send and load").click()
        form.get_by_role("progressbar", name="Sent so far").wait_for()
        form.get_by_role("button", name="Stop").click()
        page.get_by_role("alert").filter(has_text="the server keeps nothing of it").wait_for()
        self.assertEqual(SERVER.call("GET", "/v1/lora_adapters")[2]["uploads"]["held_bytes"], 0)

    def test_columns_sort(self):
        page = self.start("#adapters")
        names = page.locator("tbody th")
        names.first.wait_for()
        before = names.all_inner_texts()
        page.get_by_role("button", name="Name").click()
        self.assertEqual(names.all_inner_texts(), before[::-1])

    def test_chosen_ones_are_compared(self):
        page = self.start("#adapters")
        page.get_by_label("Choose two").check()
        page.get_by_role("link", name="Compare the answers of 1").click()
        page.locator(".pane").first.wait_for()
        self.assertEqual(page.locator(".pane h2").all_inner_texts(), ["base", "two"])


class EngineTest(Console):
    def test_charts_tokens_and_times(self):
        page = self.start("#engine")
        SERVER.post("/v1/completions", model="one", prompt="Hello", max_tokens=5)
        page.get_by_role("img", name="Tokens generated a second").wait_for()
        page.locator("polyline").first.wait_for(state="attached")
        page.locator(".bars").get_by_text("one").first.wait_for()
        page.get_by_role("button", name="Show its tokens").click()
        tokens = SERVER.post("/tokenize", model="base", messages=[{"role": "user", "content": "What is the capital of France?"}])["tokens"]
        page.locator(".prompt-tokens li").first.wait_for()
        self.assertEqual(page.locator(".prompt-tokens li > span").all_inner_texts(), [str(token) for token in tokens])
        page.get_by_role("button", name="Ask and time it").click()
        page.get_by_text("Whole answer").wait_for()
        page.get_by_label("With the chat template").uncheck()
        page.get_by_role("button", name="Ask and time it").click()
        page.get_by_text("Whole answer").wait_for()
        self.assertEqual(self.bodies("v1/completions")[0]["prompt"], "What is the capital of France?")

    def test_who_is_in_the_batch(self):
        page = self.start("#engine")
        page.get_by_text("Nothing is being answered").wait_for()
        mix = [{"name": "one", "scale": 0.5}, {"name": "two", "scale": 1}]
        with contextlib.closing(SERVER.connection()) as connection:  # which ends the answers
            body = {"model": "base", "lora": mix, "prompt": "Hello", "n": 32, "max_tokens": 4000, "ignore_eos": True, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(body), served.JSON)
            connection.getresponse()
            page.get_by_text("32 answers of 1 voice in each step").wait_for()
            row = page.get_by_role("region", name="Answers in the batch").locator("tbody tr").first
            self.assertRegex(row.inner_text(), r"^one × 0.5 \+ two\tanswers\t5 of 5\t\d+\t(\d+ of \d+)?$")
        page.get_by_text("Nothing is being answered").wait_for()


class PlainModelTest(browser.BrowserTest):
    """A model without a chat template goes on from texts."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = served.Server(FILES.plain_model(), "--adapter-root", FILES.root)
        cls.addClassCleanup(cls.server.stop)

    def test_chats_are_texts(self):
        page = self.open(self.server.port)
        page.get_by_text("This model has no chat template").wait_for()
        self.say(page, "Once upon a time")
        self.assertEqual(self.bodies("v1/completions")[0]["prompt"], "Once upon a time")
        self.assertNotEqual(page.locator(".message.assistant .markdown").inner_text(), "")
        self.assertEqual(page.locator(".message.assistant").get_by_role("alert").count(), 0)

    def test_looked_into(self):
        page = self.open(self.server.port, "#engine")
        page.get_by_role("button", name="Show its tokens").click()
        page.locator(".prompt-tokens li").first.wait_for()
        page.get_by_role("button", name="Ask and time it").click()
        page.get_by_text("Whole answer").wait_for()

    def test_compared_too(self):
        page = self.open(self.server.port, "#compare")
        page.get_by_role("button", name="Ask all").click()
        page.get_by_text("Which answer is best?").wait_for()
        page.locator(".token.differs").first.hover()
        self.assertGreater(page.locator(".token-card li").count(), 2)  # tokens that look alike are one there
        page.get_by_role("button", name="Replay").last.click()
        self.assertIn("✓ The same", page.locator(".proof, .problem").first.inner_text())


class PageTest(Console):
    def fill(self, page, view):
        """Something of everything that the view shows."""
        if view == "chat":
            self.say(page, "Hello")
            page.get_by_role("button", name="Voice, system prompt and sampling").click()
        if view == "compare":
            page.get_by_role("button", name="Ask all").click()
            page.get_by_role("button", name="none is better").click()
            page.get_by_role("heading", name="Votes").wait_for()
        if view == "adapters":
            page.get_by_label("Choose one").check()
            page.get_by_label("Choose two").check()
            page.get_by_role("button", name="Effects by layer").click()
            page.get_by_role("region", name="Effect of two by layer").wait_for()
            page.get_by_label("Numbers").check()
        if view == "engine":
            page.get_by_role("button", name="Show its tokens").click()
            page.locator(".prompt-tokens li").first.wait_for()

    def test_everybody_can_use_it(self):
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
            page = self.start(color_scheme=scheme, viewport={"width": width, "height": 844})
            for view in VIEWS:
                page.goto(f"http://127.0.0.1:{SERVER.port}/#{view}")
                page.locator(f".view.{view}").wait_for()
                self.fill(page, view)
                found = axe.Axe().run(page)
                self.assertEqual(found.violations_count, 0, f"{view}, {scheme}, {width}: {found.generate_report()}")
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width, view)

    def test_keyboard_and_theme(self):
        page = self.start()
        page.locator("#message").wait_for()
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.textContent"), "Skip to the content")
        page.keyboard.press("Enter")
        self.assertEqual(page.evaluate("document.activeElement.id"), "main")
        for number, view in enumerate(VIEWS, 1):
            page.keyboard.press(f"Alt+{number}")
            page.locator(f".view.{view}").wait_for()
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keyboard").wait_for()
        page.keyboard.press("Escape")
        self.assertEqual(page.get_by_role("dialog").count(), 0)
        colour = "getComputedStyle(document.documentElement).backgroundColor"
        system = page.evaluate(colour)
        page.get_by_role("button", name="Theme: system").click()
        page.get_by_role("button", name="Theme: light").click()
        self.assertNotEqual(page.evaluate(colour), system)
        page.reload()
        page.get_by_role("button", name="Theme: dark").wait_for()
        self.assertNotEqual(page.evaluate(colour), system)

    def test_the_list_of_chats_on_a_phone(self):
        page = self.start(viewport={"width": 390, "height": 844})
        self.assertFalse(page.get_by_role("button", name="New chat").is_visible())
        page.get_by_role("button", name="Chats", exact=True).click()
        page.get_by_role("button", name="New chat").click()
        self.assertFalse(page.get_by_role("button", name="New chat").is_visible())


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    browser.need_chromium()
    unittest.main()
