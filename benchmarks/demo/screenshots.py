"""Pictures of the report and of the review page for the README, from the scenes that `tagfill demo` filled in.

    python benchmarks/demo/screenshots.py demo/filled

Writes docs/images/fill-report.png and docs/images/review.png; needs Chromium.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH, HEIGHT = 1180, 980
COLORS = 128  # of the palette, which keeps the files small


def main() -> None:
    filled = Path(sys.argv[1]).absolute()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto((filled / "report.html").as_uri())
        save(page, "fill-report.png")
        command = [sys.executable, "-m", "tagfill", "review", str(filled), "--port", "0", "--no-browser"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            address = next(found[0] for line in server.stderr if (found := re.search(r"http://\S+/", line)))
            page.goto(address)
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(2000)  # pictures fade in
            save(page, "review.png")
        finally:
            server.terminate()
            server.wait()
        browser.close()


def save(page: Page, name: str) -> None:
    """Write what the window shows, with a palette."""
    picture = Image.open(io.BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(COLORS).save(IMAGES / name, optimize=True)
    print(IMAGES / name)


if __name__ == "__main__":
    main()
