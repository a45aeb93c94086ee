#!/usr/bin/env python3
"""Takes the pictures of the console that docs/serving.md shows, of the program as it is: console_pictures.py CHORAL MODEL [FOLDER], with
the model of ./dev demo. FOLDER: docs/img. Needs what http_browser needs; run it with the Python of ./dev test, or set
CHORAL_CLIENTS_PYTHON to it."""

import concurrent.futures
import io
import pathlib
import sys

import browser
import served

served.need("PIL")
from PIL import Image  # noqa: E402  (a package that one of the clients' brings)

PROJECT = pathlib.Path(__file__).resolve().parents[2]
VOICES = ("base", "butler", "emoji", "json", "pirate", "sql", "yoda")
MOST_BYTES = 120_000  # of a picture


def compare(page):
    page.get_by_role("button", name="Ask all").click()
    page.get_by_text("Which answer is best?").wait_for()
    page.get_by_label("Pane pirate").locator(".token.differs").hover()
    page.locator(".token-card li").nth(9).wait_for()


def adapters(page):
    for name in ("pirate", "sql"):
        page.get_by_label(f"Choose {name}").check()
    page.get_by_role("button", name="Effects by layer").click()
    page.get_by_role("region", name="Effect of sql by layer").wait_for()
    page.get_by_label("Choose pirate").uncheck()
    page.get_by_label("Choose sql").uncheck()
    page.locator("h1").click()  # nothing has the focus
    page.locator(".view").evaluate("view => view.scrollTo(0, 0)")


def engine(page, server):
    """While answers of different lengths come and go for half a minute."""

    def ask(number):
        server.post("/v1/completions", model=VOICES[number % len(VOICES)], prompt="Once upon a time", max_tokens=40 + 25 * (number % 5),
                    ignore_eos=True, temperature=0.8, seed=number)

    with concurrent.futures.ThreadPoolExecutor(8) as crowd:
        asked = [crowd.submit(ask, number) for number in range(96)]
        concurrent.futures.wait(asked[:72])
        page.get_by_role("region", name="Answers in the batch").wait_for()
        page.locator(".live-batch tbody tr").nth(4).wait_for()
        yield
        for one in asked:
            one.cancel()


def save(page, folder, name):
    path = folder / f"console-{name}.png"
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256, kmeans=4, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path}: {size} bytes")
    if size > MOST_BYTES:
        sys.exit(f"{path} has {size} bytes, and a picture of the documents has at most {MOST_BYTES}")


def main():
    served.CHORAL, model = sys.argv[1], sys.argv[2]
    folder = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else PROJECT / "docs" / "img"
    browser.need_chromium()
    server = served.Server(model, "--served-model-name", "smollm2", "--adapter-root", PROJECT / "examples" / "adapters")
    driver = browser.playwright.sync_playwright().start()
    chromium = driver.chromium.launch(executable_path=browser.CHROMIUM, args=["--no-sandbox"])

    def opened(view, height, scheme):
        page = chromium.new_page(viewport={"width": 1200, "height": height}, color_scheme=scheme)
        page.set_default_timeout(browser.PATIENCE)
        page.goto(f"http://127.0.0.1:{server.port}/#{view}")
        return page

    page = opened("compare", 1010, "light")
    compare(page)
    save(page, folder, "compare")
    page = opened("adapters", 980, "light")
    adapters(page)
    save(page, folder, "adapters")
    page = opened("engine", 1000, "dark")
    for _ in engine(page, server):
        save(page, folder, "engine")
    chromium.close()
    driver.stop()
    server.stop()


if __name__ == "__main__":
    main()
