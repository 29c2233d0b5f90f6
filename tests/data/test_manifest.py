from __future__ import annotations

import json

import pytest

from tagfill.data.manifest import FileRecord, Manifest, MissingImage, ViewRecord, parse_view_specs
from tagfill.errors import TagfillError
from tagfill.models import Preprocessing

WRITTEN = """{
  "images": "i",
  "image_count": 9,
  "backbone": "resnet18",
  "fingerprint": "f",
  "preprocessing": {
    "size": [
      64,
      96
    ],
    "mean": [
      123.675,
      116.28,
      103.53
    ],
    "std": [
      58.395,
      57.12,
      57.375
    ]
  },
  "grid": [
    2,
    3
  ],
  "channels": 8,
  "dtype": "uint8",
  "shard_rows": 1024,
  "seed": 3,
  "tokens": false,
  "missing": [
    {
      "row": 2,
      "image": "ä.jpg",
      "problem": "it is empty"
    },
    {
      "row": 7,
      "image": "b.jpg",
      "problem": "it is empty"
    }
  ],
  "views": {
    "eval": {
      "role": "eval",
      "number": 0,
      "rows": 9,
      "done": 9,
      "files": {
        "rows.npy": {
          "bytes": 200,
          "sha256": "a"
        }
      },
      "shards": [
        6,
        3
      ]
    },
    "flip": {
      "role": "weak",
      "number": 1,
      "rows": 5,
      "done": 0,
      "files": {},
      "shards": [
        5
      ]
    }
  },
  "version": 4
}
"""


def manifest() -> Manifest:
    """A manifest whose views and missing images are not in order."""
    return Manifest(
        images="i",
        image_count=9,
        backbone="resnet18",
        fingerprint="f",
        preprocessing=Preprocessing((64, 96), (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
        grid=(2, 3),
        channels=8,
        dtype="uint8",
        shard_rows=1024,
        seed=3,
        missing=[
            MissingImage(row=7, image="b.jpg", problem="it is empty"),
            MissingImage(row=2, image="ä.jpg", problem="it is empty"),
        ],
        views={
            "flip": ViewRecord(role="weak", number=1, rows=5, done=0, files={}, shards=[5]),
            "eval": ViewRecord(
                role="eval",
                number=0,
                rows=9,
                done=9,
                files={"rows.npy": FileRecord(bytes=200, sha256="a")},
                shards=[6, 3],
            ),
        },
    )


def test_the_bytes_of_a_manifest_do_not_depend_on_the_order_of_the_work(tmp_path):
    manifest().save(tmp_path)
    assert (tmp_path / "manifest.json").read_text(encoding="utf-8") == WRITTEN


def test_a_manifest_that_is_read_and_saved_keeps_its_bytes(tmp_path):
    (tmp_path / "manifest.json").write_text(WRITTEN, encoding="utf-8")
    Manifest.read(tmp_path).save(tmp_path)
    assert (tmp_path / "manifest.json").read_text(encoding="utf-8") == WRITTEN


@pytest.mark.parametrize("version", [2, 3])
def test_older_manifests_are_read(tmp_path, version):
    """Version 2 had no class tokens; until version 3, all shards but the last were full and `eval` had every image."""
    content = json.loads(WRITTEN) | {"version": version, "shard_rows": 4}
    for key in ["image_count"] + ["tokens"] * (version == 2):
        del content[key]
    for view in content["views"].values():
        del view["shards"]
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    read = Manifest.read(tmp_path)
    assert (read.version, read.tokens, read.image_count) == (4, False, 9)
    assert read.views["eval"].shards == [4, 4, 1]
    assert read.views["eval"].starts == [0, 4, 8]


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(TagfillError, match=r"is not a feature cache: it has no manifest\.json"):
        Manifest.read(tmp_path)


def test_another_version_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(json.loads(WRITTEN) | {"version": 0}))
    with pytest.raises(TagfillError, match="was made by another version of Tagfill; delete it and run"):
        Manifest.read(tmp_path)


def without(key: str) -> str:
    return json.dumps({name: value for name, value in json.loads(WRITTEN).items() if name != key})


def changed(**changes: object) -> str:
    return json.dumps(json.loads(WRITTEN) | changes)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (WRITTEN[: len(WRITTEN) // 2], "it is not valid JSON"),
        ("", "it is not valid JSON"),
        ("[1, 2]", r"it is \[1, 2\] \(Input should be an object\)"),
        ("null", r"it is None \(Input should be an object\)"),
        *((without(key), f"'{key}' is missing") for key in ("views", "grid", "dtype", "version", "missing")),
        (without("shard_rows"), "'shard_rows' is missing"),
        (changed(views={"eval": {"role": "eval"}}), r"'views\.eval\.number' is missing"),
        (changed(channels="8"), r"'channels' is '8' \(Input should be a valid integer\)"),
        (changed(preprocessing={"size": [64, 64]}), r"'preprocessing\.mean' is missing"),
        (changed(color=1), r"'color' is 1 \(Extra inputs are not permitted\)"),
    ],
)
def test_a_damaged_manifest_is_refused_in_one_sentence(tmp_path, content, problem):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(
        TagfillError, match=rf"manifest\.json of the feature cache .* is damaged: {problem}; delete the folder and"
    ):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "eval,", "eval,zoom", "crops", "eval,crops:0", "eval,crops:x", "eval:2", "eval,pairs"]
)
def test_a_word_that_is_not_a_view_is_refused(text):
    with pytest.raises(TagfillError, match="is not a view; write views as in eval,flip,crops:2 or eval,pairs:2"):
        parse_view_specs(text)


@pytest.mark.parametrize("text", ["flip", "eval,eval", "eval,crops:1,crops:2"])
def test_views_must_include_eval_and_each_view_once(text):
    with pytest.raises(TagfillError, match="must include eval, and each view once"):
        parse_view_specs(text)
