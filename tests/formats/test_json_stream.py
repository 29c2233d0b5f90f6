from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.layouts import coco as layout
from tagfill.errors import DatasetError
from tagfill.formats import json_stream
from tagfill.formats.json_stream import JsonFile

TEXT = st.text(st.sampled_from('ab"\\[]{},: é\n'), max_size=8)
NUMBERS = st.integers(-(2**53), 2**53)
ITEMS = st.lists(st.dictionaries(TEXT, TEXT | NUMBERS | st.lists(NUMBERS, max_size=3), max_size=3))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("json")


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(TEXT.filter(bool), ITEMS, max_size=4), st.integers(2, 40), st.sampled_from([None, 1]), st.booleans()
)
def test_items_are_those_of_json(shared, content, chunk, indent, ascii_only):
    path = shared / "a.json"
    path.write_text(json.dumps({**content, "last": 3}, indent=indent, ensure_ascii=ascii_only), encoding="utf-8")
    before = json_stream._CHUNK
    json_stream._CHUNK = chunk
    try:
        file = JsonFile.open(path)
    finally:
        json_stream._CHUNK = before

    assert len(file.sections) == len(content)
    for key, items in content.items():
        assert list(file.items(key)) == items


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[1, 2]", "is not a JSON object"),
        ("", "is not a JSON object"),
        ('{"images": [{"id": 1}', "ends in the middle of its JSON"),
        ('{"images": [{"id": "1]}', "ends in the middle of its JSON"),
        ('{"images": {"id": 1}}', "'images' is not a list"),
        ('{"images": [{"id": 1}, 7]}', r"images\[1\] is not an object but 7"),
        ('{"images": [{"id": 1}, {"id": }]}', r"is not valid JSON at images\[1\]: unallowed token"),
        ('{"photos": []}', "has no list 'images'; it has photos"),
    ],
)
def test_bad_files_are_named(tmp_path, content, problem):
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")

    with pytest.raises(DatasetError, match=rf"a\.json.* ?{problem}"):
        list(JsonFile.open(path).items("images"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"There is no file .*a\.json"):
        JsonFile.open(tmp_path / "a.json")


MEASURE = """
import resource, sys
from tagfill.formats import coco
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
coco.read({folder!r}, locations="box", exhaustive=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def kilobytes_needed(folder):
    result = subprocess.run(
        [sys.executable, "-c", MEASURE.format(folder=str(folder))], capture_output=True, text=True, check=True
    )
    return int(result.stdout)


def test_a_large_file_is_not_held_in_memory(tmp_path):
    """Two files of 4 and 20 MB, with the same number of objects but longer polygons."""
    for name, corners in (("short", 20), ("long", 120)):
        polygon = [round(number * 0.37 % 80, 2) for number in range(2 * corners)]
        items = [layout.polygons(number, 9 + number % 50, 1, polygon) for number in range(12_000)]
        path = layout.write(tmp_path / name, [layout.image(9 + number) for number in range(50)], items)
        assert path.stat().st_size > corners * 12_000 * 10

    short, long = kilobytes_needed(tmp_path / "short"), kilobytes_needed(tmp_path / "long")

    assert path.stat().st_size > 18e6
    assert long < short + 8 * 1024
