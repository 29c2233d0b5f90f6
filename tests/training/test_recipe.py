"""Recipes: how they are built, and learning rates against torch's own schedulers and by their corner values."""

from __future__ import annotations

import pytest
import torch

from tagfill.errors import TagfillError
from tagfill.training.recipe import Schedule, build_recipe

STEPS, EPOCHS = 7, 6


def rates(schedule: Schedule) -> list[float]:
    return [schedule.at(step, STEPS, EPOCHS) for step in range(STEPS * EPOCHS)]


def judged(scheduler: type, **options: object) -> list[float]:
    """The same by a scheduler of torch, stepped after each batch."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    judge = scheduler(optimizer, **options)
    found = []
    for _ in range(STEPS * EPOCHS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        judge.step()
    return found


def test_constant() -> None:
    assert set(rates(Schedule())) == {1.0}


def test_cosine() -> None:
    expected = judged(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=STEPS * EPOCHS)

    assert rates(Schedule(name="cosine")) == pytest.approx(expected, abs=1e-9)


def test_step() -> None:
    expected = judged(torch.optim.lr_scheduler.MultiStepLR, milestones=[2 * STEPS, 4 * STEPS], gamma=0.3)

    assert rates(Schedule(name="step", milestones=(2, 4), factor=0.3)) == pytest.approx(expected)


def test_one_cycle() -> None:
    found = rates(Schedule(name="one-cycle", rise=0.25))

    assert found[0] == pytest.approx(1 / 25)
    assert max(found) == pytest.approx(1.0, abs=0.01)
    assert found.index(max(found)) in (10, 11)
    assert found[-1] < 0.01
    assert found[:10] == sorted(found[:10])
    assert found[12:] == sorted(found[12:], reverse=True)


def test_warm_up_grows_from_nothing_and_then_the_schedule_begins() -> None:
    found = rates(Schedule(name="cosine", warmup_epochs=2))

    growth = found[: 2 * STEPS]
    assert growth == pytest.approx([(step + 1) / (2 * STEPS + 1) for step in range(2 * STEPS)])
    assert found[2 * STEPS] == 1.0


def test_a_part_of_a_setting_that_has_none_is_refused() -> None:
    with pytest.raises(TagfillError, match="'epochs' holds a single value"):
        build_recipe({"dataset": "d", "method": "an"}, epochs=2, overrides=[("epochs.first", 1)])


def test_the_only_stage_trains_on_the_cache_if_there_is_one() -> None:
    settings = {"dataset": "d", "method": "an"}

    assert [stage.input for stage in build_recipe(settings).stages] == ["images"]
    assert [stage.input for stage in build_recipe(settings, features="cache").stages] == ["cache"]


def test_epochs_and_learning_rate_go_to_all_stages() -> None:
    stages = [{"name": "head", "optimizer": {"name": "sgd"}}, {"name": "all", "epochs": 7}]

    recipe = build_recipe({"dataset": "d", "method": "an", "stages": stages}, epochs=3, lr=0.5)

    assert [stage.epochs for stage in recipe.stages] == [3, 3]
    assert [(stage.optimizer.name, stage.optimizer.lr) for stage in recipe.stages] == [("sgd", 0.5), ("adam", 0.5)]
    assert stages[1] == {"name": "all", "epochs": 7}, "the caller's settings were changed"


def test_settings_of_version_0_1_are_accepted_and_keep_their_hash():
    old = build_recipe({"dataset": "photos", "method": "an", "stages": [{"labelled_share": 0.5}]})
    new = build_recipe({"dataset": "photos", "method": "an", "stages": [{"labeled_share": 0.5}]})
    assert old == new
    assert new.hash() == "bc9c73bac5e7962c1c68983dcbaccb33c301f268c9fb2c5e1eab6bf6da1ae511"
