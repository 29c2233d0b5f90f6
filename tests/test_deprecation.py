from __future__ import annotations

import importlib

import pytest

import tagfill
from tagfill.deprecation import renamed, renamed_keywords


@renamed_keywords(localise="localize")
def score(*, localize: bool = False) -> bool:
    """A function with a renamed keyword."""
    return localize


def test_an_old_name_warns_and_returns_the_new_one():
    resolve = renamed("tagfill.io", {"replacing": "atomic_write"})
    with pytest.warns(DeprecationWarning, match=r"tagfill\.io\.replacing was renamed to tagfill\.io\.atomic_write"):
        assert resolve("replacing") is importlib.import_module("tagfill.io").atomic_write


def test_an_old_name_may_have_moved_to_another_module():
    resolve = renamed("tagfill.io", {"Dataset": "tagfill.dataset.Dataset"})
    with pytest.warns(DeprecationWarning, match=r"renamed to tagfill\.dataset\.Dataset"):
        assert resolve("Dataset") is tagfill.Dataset


def test_a_name_that_never_existed_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'tagfill\.io' has no attribute 'nothing'"):
        renamed("tagfill.io", {})("nothing")


def test_an_old_keyword_warns_and_is_passed_on():
    with pytest.warns(DeprecationWarning, match=r"score\(localise=…\) was renamed to localize=…"):
        assert score(localise=True)


def test_the_new_keyword_does_not_warn(recwarn):
    assert score(localize=True)
    assert not recwarn


@pytest.mark.parametrize("name", ["Dataset", "Hierarchy", "from_records", "validate", "LabelMatrix", "UNKNOWN"])
def test_the_old_annotations_package_still_works(name):
    old = importlib.import_module("tagfill.annotations")
    home = importlib.import_module("tagfill.labels" if name in ("LabelMatrix", "UNKNOWN") else "tagfill.dataset")
    with pytest.warns(DeprecationWarning, match=rf"tagfill\.annotations\.{name} was renamed to {home.__name__}"):
        assert getattr(old, name) is getattr(home, name)


def test_an_old_module_can_still_be_imported():
    from tagfill.curation import suggesting
    from tagfill.curation.suggest import SuggestResult, suggest

    assert importlib.import_module("tagfill.curation.suggesting") is suggesting
    with pytest.warns(DeprecationWarning, match=r"renamed to tagfill\.curation\.suggest\.suggest"):
        assert suggesting.suggest is suggest
    with pytest.warns(DeprecationWarning, match=r"renamed to tagfill\.curation\.suggest\.SuggestResult"):
        assert importlib.import_module("tagfill.curation.suggest").Suggested is SuggestResult
