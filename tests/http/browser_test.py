#!/usr/bin/env python3
"""The console in a browser, over a real server: browser_test.py CHORAL [unittest arguments]. What it does when something goes wrong is in
browser_faults_test.py."""

import json
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
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root)


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
