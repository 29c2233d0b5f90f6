"""A small budget study: every kind at every budget, a second call only reads, and all files are there."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from PIL import Image
from safetensors.torch import save_file

import tagfill
from tagfill import figures
from tagfill.errors import TagfillError
from tagfill.experiments import BudgetPlan, BudgetStudy, budget_study
from tagfill.experiments.budget_results import BudgetResult, parse_costs, parse_kinds, parse_percents
from tagfill.experiments.runs import Outcome
from tagfill.models import create_backbone
from tagfill.protocols.costs import Costs

BACKBONE = {"backbone": "test_efficientnet", "image_size": 128}
PLAN = BudgetPlan(kinds=("I", "SP"), percents=(20.0, 60.0), seeds=1)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("material")
    full = tagfill.scenes.make(folder / "full", train=24, val=10, test=10, size=64)
    weights = create_backbone("test_efficientnet", image_size=128, seed=5).model.state_dict()
    save_file({name: value.contiguous() for name, value in weights.items()}, folder / "weights.safetensors")
    settings = {**BACKBONE, "pretrained": str(folder / "weights.safetensors")}
    cache = tagfill.features(full, out=folder / "cache", views="eval,flip", **settings)
    return {"dataset": full.folder, "features": cache.folder, "epochs": 1, "jobs": 1, **settings}


@pytest.fixture(scope="module")
def made(material: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BudgetStudy]:
    out = tmp_path_factory.mktemp("study")
    return out, study_of(material, PLAN, out)


def study_of(material: dict[str, Any], plan: BudgetPlan, out: Path, **more: Any) -> BudgetStudy:
    settings = {name: value for name, value in {**material, **more}.items() if name != "dataset"}
    return tagfill.budget(material["dataset"], plan, out=out, **settings)


def test_every_kind_at_every_budget_is_scored_on_both_measures(made: tuple[Path, BudgetStudy]) -> None:
    results = made[1].results

    assert [(result.percent, result.kind) for result in results] == [(20, "I"), (20, "SP"), (60, "I"), (60, "SP")]
    for result in results:
        assert len(result.map_cls) == len(result.map_loc) == 1
        assert result.error is None
    assert [bool(result.counts["locations"]) for result in results] == [False, True, False, True]


def test_equal_budgets_cost_equal_hours_and_buy_fewer_points(made: tuple[Path, BudgetStudy]) -> None:
    tags, points = made[1].results[2:]

    whole = 24 * 20 * 0.6 / 3600
    assert tags.hours == pytest.approx(whole, rel=0.01)
    assert points.hours == pytest.approx(whole, rel=0.01)
    assert total(points) < total(tags)


def test_counts_are_those_of_the_simulated_rows(made: tuple[Path, BudgetStudy]) -> None:
    out, study = made
    part = tagfill.Dataset.open(out / "data" / "SP-60-s0")
    rows = part.rows()
    train = pc.is_in(rows["image"], value_set=part.images.filter(pc.equal(part.images["split"], "train"))["image"])

    kinds = rows.filter(train)["kind"].to_pylist()

    assert kinds.count("point") == study.results[3].counts["locations"]
    assert len(kinds) == total(study.results[3])


def test_table_figure_and_maps_are_written(made: tuple[Path, BudgetStudy]) -> None:
    out, study = made

    assert json.loads((out / "budget.json").read_text()) == study.to_json()
    page = (out / "budget.md").read_text()
    for row in study.rows():
        assert f"| {' | '.join(row)} |" in page
    for link in ("budget.svg", "maps.png"):
        assert f"({link})" in page
    assert ElementTree.parse(out / "budget.svg").getroot().tag.endswith("svg")
    assert min(size_of(out / "budget.png")) > 300
    assert size_of(out / "maps.png") > (4 * 224, 224)


def test_second_call_trains_nothing_and_more_kinds_only_what_is_new(
    material: dict[str, Any], made: tuple[Path, BudgetStudy]
) -> None:
    out, study = made
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/run.json")}

    more = ("I", "SP", "SP+patchcluster", "AB")
    again = study_of(material, replace(PLAN, kinds=more, percents=(60.0,)), out)

    after = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/run.json")}
    assert {path: after[path] for path in before} == before
    assert {path.parent.name for path in after.keys() - before.keys()} == {"SP+patchcluster-60-s0", "AB-60-s0"}
    assert again.results[:2] == study.results[2:]
    assert again.results[2].counts == again.results[1].counts, "the same points, with another method"
    assert not any(result.error for result in again.results)
    assert "SP+patchcluster" in (out / "budget.svg").read_text()


def test_tags_supervise_the_pooled_logits_only_unless_absent_cells_are_asked_for(
    made: tuple[Path, BudgetStudy],
) -> None:
    """The paper's I, Fig. 2; points and boxes have the weight that was given, or the default."""
    recipes = {
        kind: yaml.safe_load((made[0] / "runs" / f"{kind}-60-s0" / "recipe.yaml").read_text()) for kind in ["I", "SP"]
    }
    assert {kind: recipe["options"] for kind, recipe in recipes.items()} == {
        "I": {"patchml": {"w_patch": 0.0}},
        "SP": {},
    }

    given = {"patchml": {"w_patch": 7.0}, "patchcluster": {"precision": 0.5}}
    plan = BudgetPlan(kinds=("I", "SP", "I+patchcluster"), percents=(1.0,))
    options = {kind: budget_study._options_of(kind, "patchml", given, plan) for kind in plan.kinds}
    assert options == {
        "I": {"patchml": {"w_patch": 0.0}},
        "SP": {"patchml": {"w_patch": 7.0}},
        "I+patchcluster": {"patchml": {"w_patch": 0.0}, "patchcluster": {"features": "image", "precision": 0.5}},
    }
    absent = budget_study._options_of("I", "patchml", given, replace(plan, absent_cells=True))
    assert absent == {"patchml": {"w_patch": 7.0}}


def test_points_are_charged_for_a_given_number_of_classes_per_image(material: dict[str, Any], tmp_path: Path) -> None:
    """The paper has 3.5 for COCO; image labels cost the same, and all instances are counted in the dataset."""
    data = tagfill.Dataset.open(material["dataset"])
    plan = replace(PLAN, located_per_image=10.0)

    made = {kind: plan.simulate(data, 20.0, kind, 0, tmp_path / kind).protocol for kind in ("I", "SP", "AP")}

    assert [each["parameters"]["located_per_image"] for each in made.values()] == [None, 10.0, None]
    pairs = made["SP"]["kept"]["positives"] + made["SP"]["kept"]["negatives"]
    assert pairs == round(0.2 * 24 * 20 / (1 + 1.4 * 10 / 20))
    with pytest.raises(TagfillError, match="another located_per_image"):
        PLAN.simulate(data, 20.0, "SP", 0, tmp_path / "SP")


def test_a_study_on_cached_features_does_without_images_and_maps(
    material: dict[str, Any], made: tuple[Path, BudgetStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, study = made
    (out / "maps.png").unlink()
    monkeypatch.setattr(budget_study, "open_root", lambda root: Path(root) / "gone")

    assert study_of(material, PLAN, out) == study
    assert not (out / "maps.png").exists()


@pytest.mark.parametrize(
    ("plan", "more", "message"),
    [
        (replace(PLAN, costs=Costs(point=9.0)), {}, "another point_seconds"),
        (replace(PLAN, equal=True), {}, "another accounting"),
        (PLAN, {"epochs": 7}, "a run with other settings"),
        (PLAN, {"method": "patchmi"}, "patchmi"),
    ],
)
def test_another_study_in_the_same_folder_is_refused(
    material: dict[str, Any], made: tuple[Path, BudgetStudy], plan: BudgetPlan, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(TagfillError, match=message):
        study_of(material, plan, made[0], **more)


def test_equal_annotations_buy_the_same_labels_and_cost_more_with_places(
    material: dict[str, Any], tmp_path: Path
) -> None:
    data = tagfill.Dataset.open(material["dataset"])
    plan = replace(PLAN, equal=True)

    kept = {
        kind: plan.simulate(data, 20.0, kind, 0, tmp_path / kind).protocol["kept"] for kind in ("I", "SP", "SB", "AB")
    }

    assert len({(each["positives"], each["negatives"]) for each in kept.values()}) == 1
    labels = kept["I"]["positives"] + kept["I"]["negatives"]
    assert kept["I"]["seconds"] == pytest.approx(labels)
    assert kept["SP"]["seconds"] == pytest.approx(labels + 1.4 * kept["SP"]["locations"])
    assert kept["AB"]["seconds"] == pytest.approx(labels + 6 * kept["AB"]["locations"])


def test_without_boxes_and_masks_only_image_labels_are_studied(material: dict[str, Any], tmp_path: Path) -> None:
    data = tagfill.Dataset.open(material["dataset"])
    rows = pa.Table.from_batches(data.rows().to_batches())
    for name in ("x", "y", "w", "h", "rle", "rle_height", "rle_width"):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.nulls(len(rows), rows.schema.field(at).type))
    at = rows.schema.get_field_index("kind")
    rows = rows.set_column(at, rows.schema.field(at), pa.array(["image"] * len(rows)))
    tags = {**material, "dataset": data.replace(annotations=rows, folder=None).save(tmp_path / "tags").folder}

    study = study_of(tags, replace(PLAN, kinds=("I",), percents=(60.0,)), tmp_path / "out")

    assert study.rows()[0][-1] == "–"
    assert not (tmp_path / "out" / "maps.png").exists()
    with pytest.raises(TagfillError, match="Kind SP needs points, boxes or masks"):
        study_of(tags, replace(PLAN, percents=(60.0,)), tmp_path / "out")


def test_a_kind_without_scores_has_an_error_and_no_line_in_the_figure() -> None:
    counts = {"positives": 1, "negatives": 2, "images": 3, "locations": 0, "seconds": 3600.0}
    refused = BudgetResult.from_outcomes(1.0, "I", [counts], [Outcome(float("nan"), error="It needs points.")])
    scored = BudgetResult.from_outcomes(
        1.0, "SP", [counts, counts], [Outcome(50.0, localization=20.0), Outcome(52.0, localization=22.0)]
    )
    plan = BudgetPlan(("I", "SP"), (1.0,), 2)

    assert refused.row()[-2:] == ["It needs points.", "–"]
    assert scored.row() == ["1", "SP", "1.00", "1", "2", "3", "3", "0", "51.00 ± 1.41", "21.00 ± 1.41"]
    assert budget_study.draw_figure(BudgetStudy("d", "test", "patchml", plan, (refused,))) is None
    drawn = budget_study.draw_figure(BudgetStudy("d", "test", "patchml", plan, (refused, scored)))
    assert drawn is not None
    assert Image.open(BytesIO(figures.png(drawn))).format == "PNG"


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_kinds, "", "--kinds I,SP"),
        (parse_kinds, "I,SX", "SX"),
        (parse_kinds, "+patchcluster", "kind of annotation"),
        (parse_percents, "", "--budgets 0.5,1,2"),
        (parse_percents, "1,much", "'much' is not a number"),
        (parse_percents, "0", "not between 0 and 100"),
        (parse_percents, "101", "not between 0 and 100"),
        (parse_costs, "tag=1", "tag"),
        (parse_costs, "point", "'point' has no value"),
        (parse_costs, "image=0", "are invalid"),
        (parse_costs, "box=-1", "are invalid"),
    ],
)
def test_wrong_plans_are_refused(parse: Any, text: str, message: str) -> None:
    with pytest.raises(TagfillError, match=message):
        parse(text)


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


def total(result: BudgetResult) -> float:
    return result.counts["positives"] + result.counts["negatives"]
