"""Decisions about missing labels, counted again with plain loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference.decisions import judged as judged_slowly
from tagfill.experiments.analyses import analyze
from tagfill.experiments.analyses.inputs import open_runs
from tagfill.experiments.analyses.method_decisions import count_decisions
from tagfill.training import records


@pytest.mark.parametrize("name", ["ll-r", "en-scl"])
def test_decisions_are_counted_as_plain_loops_count_them(runs: dict[str, str], name: str) -> None:
    (run,) = open_runs([runs[name]])
    observed, truth = run.dataset.labels("train").dense().tolist(), run.truth().dense().tolist()

    found = {each.epoch: each for each in count_decisions(run)}

    for number, epoch in enumerate(records.read_records(run.run), start=1):
        columns = [epoch.column(f"decisions.{column}").tolist() for column in ("image", "label", "value")]
        expected = judged_slowly(list(zip(*columns, strict=True)), observed, truth, read_as=-1)
        if expected[0]:
            each = found.pop(number)
            assert (each.decided, each.known, each.right, each.total) == expected
    assert not found


def test_decisions_of_two_methods_are_compared(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("decisions", [runs["ll-r"], runs["en-scl"]], out=tmp_path)

    assert list(section.facts) == ["ll-r + boost 5", "en+scl"]
    last = section.facts["ll-r + boost 5"]
    assert last["precision"] == pytest.approx(last["right"] / last["decided"], abs=1e-3)
