"""Debian's Chromium, driven by playwright, for tests of the console. Exit 77 where either is not there."""

import os
import shutil
import sys
import unittest

import served

playwright = served.need("playwright.sync_api")

CHROMIUM = os.environ.get("CHORAL_CHROMIUM") or shutil.which("chromium")
PATIENCE = 60_000  # milliseconds

# What the browser itself says of answers that are no 200, and of connections that end: asked for by the test, and shown by the page.
OF_THE_NETWORK = "Failed to load resource"


def need_chromium():
    if not CHROMIUM:
        print("skipped: there is no chromium; ./dev test installs it where packages can be installed")
        sys.exit(77)


class BrowserTest(unittest.TestCase):
    """One browser for a class; a page with a storage of its own for each test, which may say nothing on its console."""

    @classmethod
    def setUpClass(cls):
        cls.driver = playwright.sync_playwright().start()
        cls.addClassCleanup(cls.driver.stop)
        cls.browser = cls.driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.said = []
        self.asked = []
        self.hosts = set()
        self.may_fail = False  # requests of this test's page

    def open(self, port, view="", **options):
        """A page of the console, when it is drawn."""
        context = self.browser.new_context(**{"viewport": {"width": 1280, "height": 860}, "accept_downloads": True, **options})
        self.addCleanup(context.close)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self.said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", self.note)
        page.goto(f"http://127.0.0.1:{port}/{view}")
        return page

    def note(self, request):
        self.hosts.add(request.url.split("/")[2])
        if request.method == "POST":
            self.asked.append((request.url.split("/", 3)[3], request.post_data_json))

    def bodies(self, path="v1/chat/completions"):
        return [body for asked, body in self.asked if asked == path]

    def tearDown(self):
        said = [text for text in self.said if not (self.may_fail and OF_THE_NETWORK in text)]
        self.assertEqual(said, [], "on the browser's console")
        self.assertLessEqual(len(self.hosts), 1, "other servers were asked")

    def say(self, page, text):
        """Sends a message and waits for the end of its answer."""
        answers = page.locator(".message.assistant .message-foot")
        before = answers.count()
        page.get_by_label("Message", exact=True).last.fill(text)
        page.keyboard.press("Enter")
        answers.nth(before).wait_for()
