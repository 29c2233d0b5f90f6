"""Pictures of programs that Tagfill works with, from the scenes of `tagfill demo`: they are written to docs/images.

    tagfill train demo/partial --method auto --out run
    tagfill predict run demo/partial --out predictions.parquet
    python examples/label_issues.py

    python benchmarks/demo/bridge_screenshots.py fiftyone demo/partial predictions.parquet FIFTYONE/bin/python
    python benchmarks/demo/bridge_screenshots.py card run
    python benchmarks/demo/bridge_screenshots.py frames demo/partial FEATURES runs/label-issues JUPYTER-NBCONVERT
    python benchmarks/demo/bridge_screenshots.py bucket demo/partial run MOTO/bin/python

FIFTYONE and MOTO are virtual environments with the packages `fiftyone` and `moto[server,s3]`, JUPYTER-NBCONVERT is a
command, FEATURES a feature cache of the scenes; `bucket` needs the extra `s3`. All of it needs Chromium.
"""

from __future__ import annotations

import html
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from markdown_it import MarkdownIt
from nbclient import NotebookClient
from playwright.sync_api import Page
from screenshots import TAGFILL, chromium, save, show

from tagfill.dataset import Dataset

HEIGHT = 760
PHOTOS, CLASSES = 60, 5  # in the bucket
LOADING = 10_000  # milliseconds until the App has drawn its pictures
STYLE = """
body { margin: 0 auto; max-width: 56rem; padding: 1.5rem; font: 15px/1.5 sans-serif; color: #1f2328 }
h1, h2 { border-bottom: 1px solid #d1d9e0; padding-bottom: .3rem; margin: 1rem 0 }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { border: 1px solid #d1d9e0; padding: .25rem .75rem; text-align: left }
tr:nth-child(even) { background: #f6f8fa }
pre { background: #f6f8fa; padding: .75rem; white-space: pre-wrap; font: 14px/1.5 monospace }
"""
TERMINAL = """
body { margin: 0; background: #16181d; color: #d6d9e0 } b { color: #8fd694 }
pre { margin: 0; padding: .75rem; white-space: pre-wrap; font: 14px/1.4 monospace }
"""

APP = """
import sys
import fiftyone as fo
from fiftyone import ViewField as F

dataset = fo.Dataset.from_dir(sys.argv[1], fo.types.FiftyOneDataset, name="scenes")
view = dataset.match_tags("train").filter_labels("predictions", F("state") == "present")
session = fo.launch_app(view, remote=True, address="127.0.0.1", port=int(sys.argv[2]))
print("started", flush=True)
sys.stdin.read()
"""

CELLS = (
    """
import numpy, pandas, tagfill

photos = tagfill.Dataset.from_pandas(pandas.read_csv("tags.csv"), "photos")
photos.to_pandas(per_class=True).iloc[:4, :9]
""",
    """
from tagfill.sklearn import PartialLabelClassifier

data = tagfill.Dataset.open("scenes")
labels, features = data.labels().dense(), numpy.load("features/views/eval/pooled.npy")
train, test = data.split("train"), data.split("test")
model = PartialLabelClassifier().fit(features[train], labels[train])  # 1 present, 0 absent, −1 unknown
model.score(features[test], labels[test])  # mean average precision
""",
    """
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
from tagfill.curation.cleanlab import arrays, issues_as_suggestions

given = arrays("issues/data", "issues/run")
issues = find_multilabel_issues_per_class(given.labels, given.pred_probs)
issues_as_suggestions("issues/data", given, issues).table.to_pandas().head(4)
""",
)


def fiftyone(page: Page, dataset: str, predictions: str, python: str) -> None:
    """The App with the given tags of photos and those that are predicted."""
    with tempfile.TemporaryDirectory() as folder:
        option = f"predictions={predictions}"
        write = [*TAGFILL, "write", dataset, "--format", "fiftyone", "--option", option, "--out", f"{folder}/scenes"]
        subprocess.run(write, check=True)
        port = free_port()
        settings = {"HOME": folder, "FIFTYONE_DATABASE_DIR": f"{folder}/db", "FIFTYONE_DO_NOT_TRACK": "1"}
        command = [python, "-c", APP, f"{folder}/scenes", str(port)]
        app = subprocess.Popen(
            command, env=os.environ | settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert app.stdout is not None
            assert any("started" in line for line in app.stdout)
            page.goto(f"http://127.0.0.1:{port}/", wait_until="commit")
            page.wait_for_selector("text=predictions", timeout=300_000)
            page.wait_for_timeout(LOADING)  # it never stops to ask for news
            if page.locator("text=Dismiss").count():
                page.click("text=Dismiss")
            page.wait_for_timeout(LOADING)
            save(page, "fiftyone.png")
        finally:
            app.terminate()
            app.wait()


def card(page: Page, run: str) -> None:
    """The model card of a run, as a model hub shows it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*TAGFILL, "export", run, "--model-card", f"{folder}/scene-tagger"], check=True)
        text = Path(folder, "scene-tagger", "README.md").read_text(encoding="utf-8")
    _, _, body = text.removeprefix("---\n").partition("\n---\n")
    page.set_content(f"<style>{STYLE}</style>{MarkdownIt('commonmark').enable('table').render(body)}")
    page.set_viewport_size({"width": 880, "height": 1000})
    save(page, "model-card.png")


def frames(page: Page, dataset: str, features: str, issues: str, nbconvert: str) -> None:
    """A notebook with data frames, scikit-learn and cleanlab."""
    data = Dataset.open(dataset)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tags(data.to_pandas("train"), folder / "tags.csv")
        for link, target in (("photos", data.root), ("scenes", dataset), ("features", features), ("issues", issues)):
            (folder / link).symlink_to(Path(str(target)).absolute())
        cells = [nbformat.v4.new_code_cell(source.strip()) for source in CELLS]
        notebook = nbformat.v4.new_notebook(cells=cells)
        NotebookClient(notebook, timeout=900, resources={"metadata": {"path": name}}).execute()
        for cell in notebook.cells:  # without bars of progress
            cell["outputs"] = [output for output in cell["outputs"] if output["output_type"] == "execute_result"]
        nbformat.write(notebook, folder / "frames.ipynb")
        subprocess.run([nbconvert, "--to", "html", str(folder / "frames.ipynb")], check=True)
        page.set_viewport_size({"width": 1080, "height": 730})
        page.goto((folder / "frames.html").as_uri())
        show(page)
        save(page, "frames.png")


def bucket(page: Page, dataset: str, run: str, python: str) -> None:
    """A terminal: photos of a bucket get tags, and a bucket refuses access."""
    data = Dataset.open(dataset)
    frame = data.to_pandas("train")
    frame = frame[frame["tags"].map(lambda tags: set(tags) <= set(data.classes[:CLASSES]))][:PHOTOS]
    fill = (
        "import sys, boto3\n"
        "client = boto3.client('s3', endpoint_url=sys.argv[1])\n"
        "client.create_bucket(Bucket='shop')\n"
        "[client.upload_file(f'{sys.argv[2]}/{name}', 'shop', f'photos/{name}') for name in sys.argv[3:]]\n"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tags(frame, folder / "tags.csv")
        (folder / "tagger").symlink_to(Path(run).absolute())
        keys = {"AWS_ACCESS_KEY_ID": "our-key", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"}
        own = {**keys, "TAGFILL_CACHE": f"{folder}/cache"}
        bring_in = "tagfill import tags tags.csv --photos s3://shop/photos --out"
        with s3_server(python, own) as url:
            upload = [python, "-c", fill, url, str(data.root), *frame["image"]]
            subprocess.run(upload, env=os.environ | own, check=True)
            own["AWS_ENDPOINT_URL_S3"] = url
            shown = [session(f"{bring_in} shop", folder, own)]
            shown += [session("tagfill predict tagger shop --out tags-of-all.csv --quiet", folder, own)]
        with s3_server(python, own | {"INITIAL_NO_AUTH_ACTION_COUNT": "0"}) as url:
            own |= {"AWS_ENDPOINT_URL_S3": url, "TAGFILL_CACHE": f"{folder}/other"}
            shown += [session(f"{bring_in} again", folder, own, AWS_ACCESS_KEY_ID="unknown-key")]
    page.set_viewport_size({"width": 980, "height": 100})
    page.set_content(f"<style>{TERMINAL}</style><pre>{''.join(shown).strip()}</pre>")
    page.set_viewport_size({"width": 980, "height": page.evaluate("document.body.scrollHeight")})
    save(page, "photos-in-a-bucket.png")


def session(command: str, folder: Path, settings: Mapping[str, str], **shown: str) -> str:
    """What a terminal shows of a command, after variables that are shown too."""
    done = subprocess.run(
        [*TAGFILL, *command.split()[1:]],
        cwd=folder,
        env=os.environ | settings | shown,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    line = " ".join([*(f"{name}={value}" for name, value in shown.items()), command])
    return f"<b>$ {line}</b>\n{html.escape(done.stdout)}\n"


def write_tags(frame: Any, path: Path) -> None:
    """Images and tags of a data frame as a table."""
    table = frame[["image", "tags"]]
    table.assign(tags=table["tags"].map("; ".join)).to_csv(path, index=False)


@contextmanager
def s3_server(python: str, settings: Mapping[str, str]) -> Iterator[str]:
    """The address of a server with the protocol of S3."""
    port = free_port()
    command = [str(Path(python).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("The server does not start.")


if __name__ == "__main__":
    picture, *rest = sys.argv[1:]
    with chromium(HEIGHT) as window:
        {"fiftyone": fiftyone, "card": card, "frames": frames, "bucket": bucket}[picture](window, *rest)
