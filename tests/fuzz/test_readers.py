"""Every reader on files that are truncated, reordered, duplicated, of wrong types, with huge numbers, marked and mixed.

A reader answers with a clear error or with what the file says: it never crashes, and a change that means nothing never
changes what is read. `make test` runs a few cases of each reader, `make fuzz` 10,000.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from fuzz import trees
from fuzz.mutations import TEXT, encoded, mutations
from fuzz.promises import Promise, content, meaning
from fuzz.sources import SOURCES, Source
from fuzz.trees import Tree
from tagfill.dataset import Dataset, validation
from tagfill.errors import TagfillError

CASES = int(os.environ.get("FUZZ_CASES", "25"))
_MEMORY = Path("/dev/shm")
SCRATCH = _MEMORY if _MEMORY.is_dir() else None
TREES_OF_TEN = 2  # of ten cases that change which files exist; the others change the content of one

fuzzed = settings(
    max_examples=CASES,
    derandomize=CASES <= 100,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)


class Case(tuple[Tree, Promise]):
    """Files and a promise; a failing test shows the notes, not all of the files."""

    def __repr__(self) -> str:
        return self[1].name


@st.composite
def changed(draw: st.DrawFn, source: Source) -> tuple[Tree, Promise]:
    """The files of a source after one change, and what must be made of them."""
    rng = Random(draw(st.integers(0, 2**32 - 1)))
    if not source.files or draw(st.integers(0, 9)) < TREES_OF_TEN:
        mutation = draw(st.sampled_from(trees.ALL))
        note(mutation.__name__)
        return mutation(source.tree, rng)
    file = draw(st.sampled_from(source.files))
    change = draw(st.sampled_from(mutations(file)))
    whole = source.tree[file.path]
    assert isinstance(whole, bytes)
    other, promise = change(whole, rng)
    if file.kind in TEXT:
        other = encoded(other, rng)
    note(f"{file.path} {change.__name__} ({promise.name}):\n{other[:3000]!r}")
    return {**source.tree, file.path: other}, promise


def outcome(source: Source, tree: Tree) -> Dataset | TagfillError:
    """What a reader makes of files: a dataset without errors, or the error."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="fuzz-") as folder:
        trees.write_tree(tree, Path(folder, "source"))
        try:
            dataset = source.read(Path(folder, "source"), Path(folder, "output"))
            dataset = dataset.replace(annotations=dataset.rows().combine_chunks())  # one batch, which is quicker
        except TagfillError as error:
            return error
        wrong = [problem for problem in validation.validate(dataset) if problem.severity == "error"]
        return TagfillError(str(wrong[0])) if wrong else dataset


@pytest.mark.parametrize("format_name", SOURCES)
def test_a_clear_error_or_a_right_answer(format_name):
    sources = SOURCES[format_name]
    clean = [outcome(source, source.tree) for source in sources]

    @fuzzed
    @given(st.data())
    def check(data: st.DataObject) -> None:
        which = data.draw(st.integers(0, len(sources) - 1))
        tree, promise = data.draw(changed(sources[which]).map(Case))
        found, expected = outcome(sources[which], tree), clean[which]
        assert isinstance(expected, Dataset)
        if isinstance(found, TagfillError):
            note(str(found)[:3000])
            assert promise <= Promise.SAME_OR_REFUSED
            assert_clear(str(found))
        elif promise == Promise.EXACTLY:
            assert content(found) == content(expected)
        elif promise >= Promise.SAME_OR_REFUSED:
            assert meaning(found) == meaning(expected)

    check()


def assert_clear(message: str) -> None:
    """One sentence that a person can read."""
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 1500
