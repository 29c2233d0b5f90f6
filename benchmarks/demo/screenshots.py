"""Pictures of the report and of the pages of `review` and `browse`, from the scenes that `tagfill demo` filled in.

    python benchmarks/demo/screenshots.py demo/filled

Writes fill-report.png, review.png, browse.png and browse-map.png to docs/images; needs Chromium.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parents[2] / "docs" / "images"
TAGFILL = (sys.executable, "-m", "tagfill")
WIDTH, HEIGHT, BROWSE_HEIGHT = 1180, 980, 760
COMMONEST = """() => [...document.querySelectorAll("#label option")].slice(1)
  .sort((one, other) => other.textContent.match(/\\d+/)[0] - one.textContent.match(/\\d+/)[0])[0].value"""
COLORS = 128  # of the palette, which keeps the files small


def main() -> None:
    filled = Path(sys.argv[1]).absolute()
    with chromium(HEIGHT) as page:
        page.goto((filled / "report.html").as_uri())
        save(page, "fill-report.png")
        with serving("review", filled) as address:
            show(page, address)
            save(page, "review.png")
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder, "features")
            command = [*TAGFILL, "features", filled / "known", "--views", "eval", "--out", cache]
            subprocess.run(list(map(str, command)), check=True)
            with serving("browse", filled, "--features", cache) as address:
                page.set_viewport_size({"width": WIDTH, "height": BROWSE_HEIGHT})
                show(page, address)
                page.click("#photo-4")
                page.click("#all-nearest")
                show(page)
                save(page, "browse.png")
                page.keyboard.press("Escape")
                page.click("#as-map")
                page.select_option("#label", page.evaluate(COMMONEST))
                page.click("#pictures")
                show(page)
                save(page, "browse-map.png")


@contextmanager
def chromium(height: int) -> Iterator[Page]:
    """A page in a browser without a window."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser.new_page(viewport={"width": WIDTH, "height": height})
        browser.close()


@contextmanager
def serving(*words: object) -> Iterator[str]:
    """Start a command that serves a page; gives its address."""
    command = [*TAGFILL, *map(str, words), "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        yield next(found[0] for line in server.stderr if (found := re.search(r"http://\S+/", line)))
    finally:
        server.terminate()
        server.wait()


def show(page: Page, address: str | None = None) -> None:
    """Open a page, or wait for what was clicked."""
    if address:
        page.goto(address)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(2000)  # pictures fade in


def save(page: Page, name: str) -> None:
    """Write what the window shows, with a palette."""
    picture = Image.open(io.BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(COLORS).save(IMAGES / name, optimize=True)
    print(IMAGES / name)


if __name__ == "__main__":
    main()
