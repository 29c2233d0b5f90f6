"""The picture of a photo with predicted tags in Label Studio for docs/label-studio.md.

    label-studio start --username ann@example.org --password … --user-token … --enable-legacy-api-token
    tagfill serve RUN --label-studio --dataset demo/partial --label-studio-url http://127.0.0.1:8080 …
    LABEL_STUDIO_API_KEY=… LABEL_STUDIO_PASSWORD=… \\
        python benchmarks/demo/label_studio_screenshot.py http://127.0.0.1:8080 http://127.0.0.1:8316 demo/partial

Makes a project with the first photos of the test split, which are uploaded, connects the model, and writes
docs/images/label-studio.png; needs Chromium.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import sync_playwright

from tagfill.dataset import Dataset
from tagfill.formats.label_studio_config import labeling_config

TARGET = Path(__file__).parents[2] / "docs" / "images" / "label-studio.png"
PHOTOS = 4
WIDTH, HEIGHT = 1180, 980
COLORS = 128  # of the palette, which keeps the file small


def main() -> None:
    address, backend, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    headers = {"authorization": f"Token {os.environ['LABEL_STUDIO_API_KEY']}"}
    with httpx.Client(base_url=f"{address}/api/", headers=headers, timeout=120, trust_env=False) as client:
        project = make_project(client, backend, Dataset.open(folder))
        email = client.get("current-user/whoami").raise_for_status().json()["email"]
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(120_000)
        page.goto(f"{address}/user/login/")
        page.fill("input[name=email]", email)
        page.fill("input[name=password]", os.environ["LABEL_STUDIO_PASSWORD"])
        page.click("button[type=submit]")
        page.wait_for_load_state("networkidle")
        page.goto(f"{address}/projects/{project}/data?labeling=1")
        page.wait_for_selector("text=All other tags are")
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(3000)  # the photo is drawn
        picture = Image.open(io.BytesIO(page.screenshot()))
        picture.convert("RGB").quantize(COLORS).save(TARGET, optimize=True)
        browser.close()
    print(TARGET)


def make_project(client: httpx.Client, backend: str, dataset: Dataset) -> int:
    """A project with photos and their predictions; its number."""
    assert isinstance(dataset.root, Path)
    content = {"title": "photos", "label_config": labeling_config(dataset.classes), "show_collab_predictions": True}
    project: int = client.post("projects", json=content).raise_for_status().json()["id"]
    for name in dataset.names(dataset.split("test"))[:PHOTOS]:
        upload = {"file": (Path(name).name, (dataset.root / name).read_bytes(), "image/png")}
        client.post(f"projects/{project}/import", files=upload).raise_for_status()
    model = {"project": project, "url": backend, "title": "Tagfill"}
    client.post("ml", json=model).raise_for_status()
    client.patch(f"projects/{project}", json={"model_version": "Tagfill"}).raise_for_status()
    everything = {"project": project, "selectedItems": {"all": True, "excluded": []}}
    asked = client.post(f"dm/actions?id=retrieve_tasks_predictions&project={project}", json=everything)
    asked.raise_for_status()
    return project


if __name__ == "__main__":
    main()
