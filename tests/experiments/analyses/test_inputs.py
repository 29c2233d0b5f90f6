"""Names of runs in figures."""

from __future__ import annotations

from tagfill.experiments.analyses.inputs import open_runs


def test_runs_of_one_method_are_named_by_their_settings(runs: dict[str, str]) -> None:
    named = [runs["an"], runs["en-scl"], runs["en-scl-0"], f"mine={runs['role']}", runs["query"]]

    labels = [run.label for run in open_runs(named)]

    assert labels[1:4] == ["en+scl", "en+scl, weight 0.0", "mine"]
    assert len(set(labels)) == 5


def test_one_method_on_two_datasets_is_named_by_the_dataset(runs: dict[str, str]) -> None:
    opened = open_runs([runs["an"], runs["an-half"]])

    assert [run.title for run in opened] == ["an", "an"]
    assert [run.label for run in opened] == ["an on single", "an on half"]
