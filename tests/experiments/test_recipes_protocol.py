"""Every row of every published recipe against the protocol of its paper, which is typed a second time beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.protocols_of_papers import PROTOCOLS, Protocol, expected
from tagfill.experiments import recipes
from tagfill.training import Recipe, make_recipe

PUBLISHED = [name for name in recipes.names() if not name.startswith("cpu/")]


def rows(name: str) -> dict[str, Recipe]:
    """All rows of a recipe, resolved."""
    file = recipes.open_recipe(name)
    assert file.published is not None
    return {row: make_recipe(file.settings(row)) for row in file.published.rows}


def schedules(protocol: Protocol, stages: int) -> tuple[object, ...]:
    return protocol.schedule * stages if len(protocol.schedule) == 1 else protocol.schedule


def shown(schedule: object) -> object:
    """A schedule with the settings that matter to it."""
    name = schedule.name  # type: ignore[attr-defined]
    if name == "step":
        return name, schedule.milestones, schedule.factor  # type: ignore[attr-defined]
    return (name, schedule.rise) if name == "one-cycle" else name  # type: ignore[attr-defined]


def test_every_published_recipe_has_its_protocol_here():
    assert set(PROTOCOLS) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_rows_are_trained_as_published(name):
    for row, recipe in rows(name).items():
        protocol, stages = expected(name, row), recipe.stages
        found = Protocol(
            net=recipe.backbone,
            px=recipe.image_size[0] if isinstance(recipe.image_size, tuple) else recipe.image_size,  # type: ignore[arg-type]
            optimizer=stages[-1].optimizer.name,
            lr=tuple(stage.optimizer.lr for stage in stages),
            batch=recipe.batch_size,
            epochs=tuple(stage.epochs for stage in stages),
            scored=protocol.scored,
            data=protocol.data,
            views=(stages[-1].crop_scale, stages[-1].flip, stages[-1].vertical_flip, stages[-1].strong),
            decay=stages[-1].optimizer.weight_decay,
            head_rate=stages[-1].optimizer.head_multiplier,
            schedule=tuple(shown(stage.schedule) for stage in stages),
            select=recipe.select,
            average=stages[-1].average,
            pretrained=recipe.pretrained,
        )
        if row == "role-linear":  # features cached once, so that its view is that of the cache
            found = replace(found, views=protocol.views)
        lr = protocol.lr * len(stages) if len(protocol.lr) == 1 else protocol.lr
        assert found == replace(protocol, lr=lr, schedule=schedules(protocol, len(stages))), row


@pytest.mark.parametrize("name", PUBLISHED)
def test_tables_are_scored_and_simulated_as_published(name):
    published, protocol = recipes.open_recipe(name).published, PROTOCOLS[name]
    assert published is not None
    metric = published.metric
    assert (metric.split, metric.average_precision, metric.empty) == protocol.scored
    commands = " \n".join([*published.data, ""])
    assert [part for part in protocol.data if part not in commands] == []
    assert all(f"--split {metric.split}" in command for command in published.evaluate)
    words = {"average_precision": "--definition", "empty": "--empty"}
    for setting, flag in words.items():
        value, default = getattr(metric, setting), recipes.Metric.model_fields[setting].default
        assert all((f"{flag} {value}" in command) == (value != default) for command in published.evaluate), setting
