#!/usr/bin/env python3
"""What the console shows of answers that go wrong, or say what they should not, and of keys: browser_faults_test.py CHORAL [unittest
arguments]."""

import json
import sys
import unittest

import browser
import page_server
import served

FILES = served.Files(context=4096)
SERVER = FAULTS = None
USER, ADMIN = "user-key-0123456789", "admin-key-0123456789"


def setUpModule():
    global SERVER, FAULTS
    SERVER = served.Server(FILES.model, "--adapter-root", FILES.root, "--api-key", USER, "--admin-api-key", ADMIN)
    FAULTS = page_server.PageServer(SERVER.port)


def tearDownModule():
    FAULTS.stop()
    assert SERVER.stop() == 0, "".join(SERVER.said)


class FaultTest(browser.BrowserTest):
    def answer_to(self, text):
        page = self.open(FAULTS.port)
        self.say(page, text)
        return page, page.locator(".message.assistant").last

    def test_a_stream_that_breaks(self):
        self.may_fail = True
        page, answer = self.answer_to("break")
        self.assertIn("The first half", answer.inner_text())
        self.assertIn("the stream ended before the answer did", answer.get_by_role("alert").inner_text())
        self.say(page, "hello")
        self.assertIn("You said: hello", page.locator(".message.assistant").last.inner_text())
        sent = FAULTS.bodies[-1]["messages"]
        self.assertEqual([m["content"] for m in sent], ["break", "The first half", "hello"])

    def test_an_error_within_a_stream(self):
        _, answer = self.answer_to("error event")
        self.assertIn("the engine fell over", answer.get_by_role("alert").inner_text())
        self.assertIn("Some", answer.inner_text())

    def test_an_event_that_is_no_json(self):
        _, answer = self.answer_to("garbage")
        self.assertIn("The answer broke off", answer.get_by_role("alert").inner_text())

    def test_refusals(self):
        self.may_fail = True
        page, answer = self.answer_to("refuse")
        self.assertEqual(answer.get_by_role("alert").inner_text(), "the prompt is too long")
        self.say(page, "html")
        self.assertIn("Bad gateway", page.locator(".message.assistant").last.get_by_role("alert").inner_text())

    def test_a_server_that_is_gone(self):
        self.may_fail = True
        page = self.open(FAULTS.port)
        page.locator("#message").wait_for()
        page.route("**/chat/completions", lambda route: route.abort())
        self.say(page, "hello")
        self.assertIn("does not answer", page.locator(".message.assistant").get_by_role("alert").inner_text())

    def test_thoughts_are_folded(self):
        for wanted, thought, said in (("think", "Let me think.", "The answer."), ("think as vllm", "Hm.", "Yes.")):
            page, answer = self.answer_to(wanted)
            self.assertIn(said, answer.inner_text())
            self.assertFalse(answer.get_by_text(thought).is_visible())
            answer.get_by_text("Thoughts").click()
            answer.get_by_text(thought).wait_for()
            self.say(page, "hello")
            self.assertEqual(FAULTS.bodies[-1]["messages"][1], {"role": "assistant", "content": said})

    def test_calls_of_tools(self):
        page = self.open(FAULTS.port)
        page.get_by_role("button", name="Voice, system prompt and sampling").click()
        page.get_by_text("Tools", exact=True).click()
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
        page.get_by_label("Tools, as OpenAI").fill(json.dumps(tools))
        self.say(page, "call")
        answer = page.locator(".message.assistant").last
        self.assertEqual(FAULTS.bodies[-1]["tools"], tools)
        self.assertEqual(json.loads(answer.locator(".call pre").inner_text()), {"city": "Rome"})
        answer.get_by_label("Result of weather").fill("sunny")
        answer.get_by_role("button", name="Give it").click()
        page.get_by_text("You said: sunny").wait_for()
        sent = FAULTS.bodies[-1]["messages"]
        self.assertEqual([m["role"] for m in sent], ["user", "assistant", "tool"])
        self.assertEqual(sent[1]["tool_calls"][0]["function"], {"name": "weather", "arguments": '{"city": "Rome"}'})
        self.assertEqual(sent[2], {"role": "tool", "tool_call_id": "call_1", "content": "sunny"})

    def test_markdown_without_harm(self):
        page, answer = self.answer_to("markdown")
        answer.locator("pre .hljs-keyword").first.wait_for()
        answer.locator("math").nth(1).wait_for(state="attached")
        self.assertEqual(answer.locator("h3").inner_text(), "Title")
        self.assertEqual(answer.locator("td").all_inner_texts(), ["1", "2"])
        self.assertEqual(answer.locator("img, script, [onerror], [onclick], [style], a[href^=javascript]").count(), 0)
        self.assertIsNone(page.evaluate("window.hurt ?? null"))
        for link in answer.locator("a[href]").all():
            self.assertEqual(link.get_attribute("rel"), "noopener noreferrer")
        answer.get_by_role("button", name="Copy", exact=True).first.click()
        self.assertIn("def answer()", page.evaluate("navigator.clipboard.readText()"))

    def test_answers_can_be_stopped(self):
        page = self.open(FAULTS.port)
        for stop in (lambda: page.keyboard.press("Escape"), lambda: page.get_by_role("button", name="Stop").click()):
            page.get_by_label("Message", exact=True).last.fill("slow")
            page.keyboard.press("Enter")
            answer = page.locator(".message.assistant").last
            answer.get_by_text("word word").wait_for()
            stop()
            answer.locator(".message-foot").filter(has_text="stopped").wait_for()
        page.goto(f"http://127.0.0.1:{FAULTS.port}/#compare")
        page.get_by_label("Question").last.fill("slow")
        page.get_by_role("button", name="Ask all").click()
        page.get_by_text("word word").nth(1).wait_for()
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Ask all").wait_for()

    def test_another_chat_ends_the_answer(self):
        page = self.open(FAULTS.port)
        page.get_by_label("Message", exact=True).last.fill("slow")
        page.keyboard.press("Enter")
        page.get_by_text("word word").wait_for()
        page.get_by_role("button", name="New chat").click()
        page.get_by_role("button", name="slow", exact=True).click()
        page.locator(".message-foot").filter(has_text="stopped").wait_for()


class KeyTest(browser.BrowserTest):
    def give(self, page, key, keep=False):
        page.locator("input[name=key]").fill(key)
        page.get_by_label("Keep it in this browser").set_checked(keep)
        page.get_by_role("button", name="Use the key").click()

    def test_a_key_is_asked_for_and_kept(self):
        self.may_fail = True
        page = self.open(SERVER.port)
        page.get_by_text("This server asks for an API key").wait_for()
        self.give(page, "wrong")
        page.get_by_text("The server does not know that key").wait_for()
        self.give(page, USER)
        page.locator("#message").wait_for()
        self.assertEqual(page.evaluate("sessionStorage['choral.key']"), USER)
        self.assertIsNone(page.evaluate("localStorage['choral.key'] ?? null"))
        page.reload()
        page.locator("#message").wait_for()
        page.goto(f"http://127.0.0.1:{SERVER.port}/#adapters")
        page.get_by_role("button", name="Pin one").click()
        page.get_by_role("alert").filter(has_text="admin's key").wait_for()
        page.get_by_role("button", name="API key").click()
        self.give(page, ADMIN, keep=True)
        page.get_by_role("button", name="Pin one").click()
        page.get_by_text("one stays in memory").wait_for()
        self.assertEqual(page.evaluate("localStorage['choral.key']"), ADMIN)
        page.get_by_role("button", name="API key").click()
        page.get_by_role("button", name="Forget the key").click()
        self.assertIsNone(page.evaluate("localStorage['choral.key'] ?? sessionStorage['choral.key'] ?? null"))


if __name__ == "__main__":
    served.CHORAL = sys.argv.pop(1)
    browser.need_chromium()
    unittest.main()
