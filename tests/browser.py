"""Chromium without a window, for the tests of pages (a plugin of tests/conftest.py).

The browser is the program that ``STREAMLDA_TEST_CHROMIUM`` names, or the first of `CHROMIUM` on the
search path. Without one these tests fail: a page is not tested by reading it.
"""

import os
import shutil

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")

#: No wait ends before, on however slow or busy a machine, unless something is wrong.
MILLISECONDS = 300_000

HOSTILE = ["<img src=x onerror=alert(1)>", "<script>alert(2)</script>", "ünïcode", "שלום", "&amp;"]

#: Contrast of the text of every visible element with what is behind it, as WCAG defines it.
#: Text of a drawing has the colour of its fill, and may stand on a circle.
CONTRASTS = """() => {
  const parse = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    const circle = element.parentElement.querySelector("a > circle");
    if (element.matches("svg text") && circle) return parse(getComputedStyle(circle).fill);
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3)
      .map((node) => node.textContent.trim()).join("");
    if (!text || !element.checkVisibility() || element.closest("noscript")) continue;
    const style = getComputedStyle(element);
    const ink = element.matches("svg text") ? style.fill : style.color;
    const [a, b] = [light(parse(ink)), light(behind(element))];
    found.push([text, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
  }
  return found;
}"""


def chromium():
    """Return the program to test with, or fail."""
    named = os.environ.get("STREAMLDA_TEST_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.fail(
            "pages must be tested in a browser, got none of "
            f"{', '.join(CHROMIUM)}; install chromium, or set STREAMLDA_TEST_CHROMIUM"
        )
    return found


@pytest.fixture(scope="module")
def browser():
    # Most runs are of tests that have no use for it.
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=MILLISECONDS)
    # Chromium does not run as root inside its sandbox.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    # A sandboxed frame in a process of its own did not load in 4 of 30 tries without a window, and
    # in none of 30 in the process of its page.
    frames = ["--disable-features=IsolateSandboxedIframes"]
    with sync_playwright() as playwright:
        options = {"executable_path": chromium(), "args": sandbox + frames}
        started = playwright.chromium.launch(**options, timeout=MILLISECONDS)
        yield started
        started.close()


class Visit:
    """A page that is open, and what it does that a user does not see: requests, and errors."""

    def __init__(self, browser, address, width=1400, scheme="light", **options):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            reduced_motion="reduce",
            **options,
        )
        self.context.set_default_timeout(MILLISECONDS)
        self.page, self.address = self.context.new_page(), address
        self.requests, self.errors = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.goto(address)
