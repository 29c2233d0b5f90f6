from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.cases import crops, single_positives
from tagfill.errors import TagfillError
from tagfill.memory import Memory

IMAGES, CLASSES = 6, 4
LABELS = single_positives(IMAGES, CLASSES)
ALL_IMAGES = torch.arange(IMAGES)


def memory(**options) -> Memory:
    return Memory(LABELS, np.arange(IMAGES), seed=0, **options)


@pytest.mark.parametrize(
    "ask",
    [
        lambda memory: memory.scores(momentum=0.8),
        lambda memory: memory.heatmaps(momentum=0.8, size=8),
        lambda memory: memory.estimates(),
        lambda memory: memory.entries("likely"),
    ],
    ids=["scores", "heatmaps", "estimates", "entries"],
)
def test_every_caller_gets_the_same_object(ask):
    one = memory()
    assert ask(one) is ask(one)


def test_sets_of_other_names_are_other_objects():
    one = memory()
    assert one.entries("likely") is not one.entries("flipped")


def test_different_options_for_one_name_are_refused():
    one = memory()
    one.scores(momentum=0.8)
    with pytest.raises(TagfillError) as refusal:
        one.scores(momentum=0.9)
    assert str(refusal.value) == (
        "Two methods of this run want different 'scores' memories ({'momentum': 0.8} and {'momentum': 0.9}); "
        "give both the same options."
    )


def test_state_above_the_budget_is_refused_before_a_file_is_made(tmp_path):
    limited = memory(folder=tmp_path / "memory", budget=IMAGES * CLASSES * 64 - 1)
    with pytest.raises(TagfillError, match=r"memory 'heatmaps' takes .* above the budget .* raise memory\.budget_gb"):
        limited.heatmaps(momentum=0.8, size=8)
    assert not (tmp_path / "memory").exists()


def test_state_that_would_not_fit_any_machine_is_refused_without_trying():
    huge = memory(budget=10**12)
    with pytest.raises(TagfillError, match="above the budget"):
        huge.heatmaps(momentum=0.8, size=10**6)


def test_state_of_exactly_the_budget_is_granted():
    memory(budget=2 * IMAGES * CLASSES).scores(momentum=0.8)


def test_the_budget_counts_what_is_there_already():
    limited = memory(budget=2 * IMAGES * CLASSES + 1)
    limited.scores(momentum=0.8)
    with pytest.raises(TagfillError, match="with what is there"):
        limited.estimates()


def test_asking_again_costs_nothing_more():
    limited = memory(budget=2 * IMAGES * CLASSES)
    limited.scores(momentum=0.8)
    limited.scores(momentum=0.8)
    assert limited.sizes() == {"scores": 2 * IMAGES * CLASSES}


def test_the_first_to_ask_writes_and_the_second_does_not():
    one = memory()
    one.begin_step()
    assert [one.first_write("scores"), one.first_write("scores"), one.first_write("heatmaps")] == [True, False, True]


def test_every_step_may_be_written_again():
    one = memory()
    for _ in range(2):
        one.begin_step()
        assert one.first_write("scores")


def filled(**options) -> Memory:
    one = memory(**options)
    one.scores(momentum=0.8).update(ALL_IMAGES, torch.full((IMAGES, CLASSES), 0.3))
    one.estimates().step(ALL_IMAGES, torch.ones(IMAGES, CLASSES), lr=0.1)
    one.entries("likely").replace([(0, torch.eye(IMAGES, CLASSES, dtype=torch.bool))])
    one.heatmaps(momentum=0.8, size=8).update(ALL_IMAGES, crops(IMAGES), torch.full((IMAGES, CLASSES, 4, 4), 0.7))
    return one


def test_saved_state_is_what_stores_start_from():
    saved = filled().state_dict()
    again = memory(saved=saved)
    again.scores(momentum=0.8), again.estimates(), again.entries("likely"), again.heatmaps(momentum=0.8, size=8)
    assert {name: value.tolist() for name, value in again.state_dict().items()} == {
        name: value.tolist() for name, value in saved.items()
    }


def test_files_go_back_to_their_checkpoint(tmp_path):
    first = filled(folder=tmp_path)
    checksums = first.mark(3)
    before = np.fromfile(tmp_path / "heatmaps.u8", np.uint8)
    first.heatmaps(momentum=0.8, size=8).update(ALL_IMAGES, crops(IMAGES, 1), torch.zeros(IMAGES, CLASSES, 4, 4))
    first.close()
    assert not np.array_equal(np.fromfile(tmp_path / "heatmaps.u8", np.uint8), before)

    second = memory(folder=tmp_path, saved=first.state_dict(), disk=(3, checksums))
    second.heatmaps(momentum=0.8, size=8)
    second.close()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "heatmaps.u8", np.uint8), before)


def test_files_of_forgotten_checkpoints_lose_their_journals(tmp_path):
    one = filled(folder=tmp_path)
    for number in (1, 2, 3):
        one.mark(number)
    one.forget(before=2)
    one.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "heatmaps.u8",
        "heatmaps.u8.undo-2",
        "heatmaps.u8.undo-3",
    ]
