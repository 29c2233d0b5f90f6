from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from methods.cases import batch_of, task_of
from reference.patch import focal_entry
from reference.patchcluster import prototypes, pseudo_labels
from tagfill.contract import Batch, Marks, Prediction, Task
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.memory import Memory
from tagfill.methods import create
from tagfill.methods.patchcluster import DistanceCounts, PatchCluster

SEEN = np.full((8, 3), -1, dtype=np.int8)
SEEN[0, 0] = SEEN[1, 1] = SEEN[2, 0] = 1
SEEN[0, 1] = SEEN[3, 0] = 0
LABELS = LabelMatrix.from_dense(SEEN)
TRUE = LabelMatrix.from_dense(np.where(SEEN >= 0, SEEN, np.arange(24).reshape(8, 3) % 2).astype(np.int8))
VAL = LabelMatrix.from_dense((np.arange(15).reshape(5, 3) % 3 == 0).astype(np.int8))
MARKED = [(0, 0, 0), (1, 1, 3), (2, 0, 1)]  # image, class, cell of the 2×2 grid; class 2 has no place


def features_of(split: str, seed: int = 0) -> torch.Tensor:
    size = 8 if split == "train" else 5
    return torch.randn(size, 4, 2, 2, generator=torch.Generator().manual_seed(seed + size))


def task(seed: int = 0, labels: LabelMatrix = LABELS, **changes) -> Task:
    def predict(split: str) -> Iterator[tuple[Batch, Prediction]]:
        features = features_of(split, seed)
        for start in range(0, len(features), 3):
            index = list(range(len(features)))[start : start + 3]
            batch = batch_of(index, labels if split == "train" else VAL)
            if split == "train":
                batch.marks = marks_of(index)
            yield batch, Prediction(torch.zeros(len(index), 3), None, features[index])

    return task_of(labels, predict=predict, truth=lambda: TRUE, **changes)


def marks_of(index: list[int]) -> Marks:
    here = [(index.index(image), label, cell) for image, label, cell in MARKED if image in index]
    boxes = [[(cell % 2 + 0.5) / 2, (cell // 2 + 0.5) / 2, 0, 0] for _, _, cell in here]
    return Marks(
        np.array([image for image, _, _ in here], np.int64),
        np.array([label for _, label, _ in here], np.int64),
        np.array(boxes, np.float64).reshape(-1, 4),
        (None,) * len(here),
    )


def started(given: Task | None = None, **options) -> tuple[PatchCluster, Task]:
    method, given = PatchCluster(**options), given or task()
    method.setup(given)
    method.begin_epoch(1)
    return method, given


def expected(positive: float, negative: float, scope: str, level: str) -> tuple[list[list[int]], list[list[int]]]:
    features = features_of("train")
    cells = features.flatten(2).transpose(1, 2) if level == "patch" else features.mean((2, 3))[:, None]
    marked = MARKED if level == "patch" else [(image, label, 0) for image, label, _ in MARKED]
    means = prototypes(cells.tolist(), marked, 3)
    return pseudo_labels(cells.tolist(), SEEN.tolist(), means, positive, negative, scope == "unlabeled_images")


@pytest.mark.parametrize("scope", ["unlabeled_images", "all_unknown"])
@pytest.mark.parametrize("level", ["patch", "image"])
@pytest.mark.parametrize(("positive", "negative"), [(0.2, 0.5), (0.4, 0.8), (0.0, 0.1)])
def test_pseudo_labels_equal_the_formula(scope, level, positive, negative):
    _, given = started(features=level, d_positive=positive, d_negative=negative, scope=scope)
    labels, cells = given.memory.found_labels(limit=100).read(torch.arange(8))
    wanted, nearest = expected(positive, negative, scope, level)
    assert labels.tolist() == wanted
    assert [[c for c, z in zip(*row, strict=True) if z >= 0] for row in zip(cells.tolist(), wanted, strict=True)] == [
        [c for c, z in zip(*row, strict=True) if z >= 0] for row in zip(nearest, wanted, strict=True)
    ]


def test_the_loss_is_that_of_the_pseudo_labels():
    method, _ = started(d_positive=0.3, d_negative=0.6, w_image=2.0)
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    term = method.loss(batch_of(list(range(8)), LABELS), Prediction(logits))["pseudo"]
    wanted, _ = expected(0.3, 0.6, "unlabeled_images", "patch")
    assert {z for row in wanted for z in row} == {-1, 0, 1}
    total = sum(
        focal_entry(float(logits[n, c]), z, False, (0.0, 1.0, 4.0), (1.0, 1.0, 1.0))
        for n, row in enumerate(wanted)
        for c, z in enumerate(row)
    )
    assert term.item() == pytest.approx(2 * total / 8, rel=1e-5)
    decided = method.decisions()
    assert len(decided) == sum(z >= 0 for row in wanted for z in row)


def test_at_the_patch_level_the_nearest_cell_is_positive_and_absent_classes_are_absent_everywhere():
    method, _ = started(d_positive=0.3, d_negative=0.6, w_patch=1.0)
    maps = torch.zeros(8, 3, 2, 2, requires_grad=True)
    logits = torch.zeros(8, 3)  # apart from the maps, so that their gradient is that of the patch level
    method.loss(batch_of(list(range(8)), LABELS), Prediction(logits, maps))["pseudo"].backward()
    wanted, nearest = expected(0.3, 0.6, "unlabeled_images", "patch")
    for n, row in enumerate(wanted):
        for c, z in enumerate(row):
            gradient = maps.grad[n, c].flatten()
            signs = gradient.sign().int().tolist()
            assert signs == ([-int(r == nearest[n][c]) for r in range(4)] if z == 1 else [int(z == 0)] * 4)


def test_both_levels_have_weights_of_their_own():
    """Eq. 4."""
    draws = torch.Generator().manual_seed(1)
    prediction = Prediction(torch.randn(8, 3, generator=draws), torch.randn(8, 3, 2, 2, generator=draws))

    def term(**options) -> float:
        method, _ = started(d_positive=0.3, d_negative=0.6, **options)
        return float(method.loss(batch_of(list(range(8)), LABELS), prediction)["pseudo"])

    image, patch = term(w_image=1.0), term(w_image=0.0, w_patch=1.0)
    assert min(image, patch) > 0
    assert term() == image
    assert term(w_image=2.0, w_patch=3.0) == pytest.approx(2 * image + 3 * patch)
    with pytest.warns(DeprecationWarning, match="w_image"), pytest.warns(DeprecationWarning, match="w_patch"):
        assert term(weight=2.0, level="patch") == pytest.approx(2 * image + 2 * patch)
    with pytest.raises(TagfillError, match="w_patch -1"):
        started(w_patch=-1.0)


def test_distances_are_chosen_on_validation():
    lines: list[str] = []
    method, _ = started(task(say=lines.append), precision=0.6, missed=0.25, scope="all_unknown")
    chosen = method.last_search.thresholds
    assert 0 <= chosen.positive < chosen.negative <= 2.001
    assert chosen.precision >= 0.6
    assert chosen.missed <= 0.25
    assert len(lines) == 1
    assert f"by distances up to {chosen.positive:.3f} and beyond {chosen.negative:.3f}" in lines[0]
    assert "on validation: precision" in lines[0]


def test_thresholds_equal_a_search_over_all_distances():
    draws = torch.Generator().manual_seed(3)
    labels = torch.randint(-1, 2, (40, 5), generator=draws)
    steps = torch.randint(0, 1000, (40, 5), generator=draws) + 300 * (labels == 0)
    distances = (steps + 0.5) / 1000  # in the middle of a step, where rounding does no harm
    counts = DistanceCounts()
    counts.add(distances[:11], labels[:11])
    counts.add(distances[11:], labels[11:])
    found = counts.choose(None, None, precision=0.8, missed=0.1)
    good = [d for d in range(2001) if precision_at(distances, labels, d / 1000) >= 0.8]
    near = next(d for d in range(2001) if taken(distances, labels, d) == taken(distances, labels, good[-1])) / 1000
    present = distances[labels == 1]
    far = next(d / 1000 for d in range(2001) if (present > d / 1000).sum() <= 0.1 * len(present))
    assert found.positive == near
    assert found.negative == max(far, near + 0.001)
    assert found.precision == pytest.approx(precision_at(distances, labels, near))
    assert found.recall == pytest.approx(float((present <= near).float().mean()))
    assert found.missed == pytest.approx(float((present > found.negative).float().mean()))


def taken(distances: torch.Tensor, labels: torch.Tensor, step: int) -> int:
    return int(((distances <= step / 1000) & (labels >= 0)).sum())


def precision_at(distances: torch.Tensor, labels: torch.Tensor, limit: float) -> float:
    near = labels[(distances <= limit) & (labels >= 0)]
    return float((near == 1).float().mean()) if len(near) else 0.0


def test_the_summary_reports_counts_and_the_truth():
    lines: list[str] = []
    method, _ = started(task(say=lines.append), d_positive=0.3, d_negative=0.6)
    wanted, true = np.array(expected(0.3, 0.6, "unlabeled_images", "patch")[0]), TRUE.dense()
    counts = method.last_search.counts()
    candidates = (SEEN == -1).all(1)[:, None] & np.array([True, True, False])
    assert counts["candidates"] == candidates.sum()
    assert counts["positives"] == (wanted == 1).sum()
    assert counts["right positives"] == ((wanted == 1) & (true == 1)).sum()
    assert counts["right negatives"] == ((wanted == 0) & (true == 0)).sum()
    assert counts["true positives"] == (candidates & (true == 1)).sum()
    assert "against the truth: precision" in lines[0]


def test_the_truth_changes_nothing():
    def no_truth() -> LabelMatrix:
        raise TagfillError("there is none")

    kept = []
    for truth in (lambda: TRUE, no_truth):
        given = task()
        given.truth = truth
        started(given, d_positive=0.3, d_negative=0.6)
        kept.append(given.memory.found_labels(limit=100).state_dict())
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])


@pytest.mark.parametrize(
    ("positive", "negative", "warning"),
    [(0.0, 1.9, "no label is near enough"), (1.9, 2.0, "more than half of the labels")],
)
def test_labeling_nothing_or_everything_warns(positive, negative, warning):
    lines: list[str] = []
    started(task(say=lines.append), d_positive=positive, d_negative=negative)
    assert warning in lines[0]


def test_a_limit_keeps_the_nearest_positives_then_the_farthest_negatives():
    whole, _ = started(d_positive=0.3, d_negative=0.6, scope="all_unknown")
    one, _ = started(d_positive=0.3, d_negative=0.6, scope="all_unknown", limit=1)
    labels = {tuple(entry) for entry in zip(*(part.tolist() for part in whole.last_search.labels()[:3]), strict=True)}
    kept = list(zip(*(part.tolist() for part in one.last_search.labels()[:3]), strict=True))
    assert set(kept) < labels
    assert len({image for image, _, _ in kept}) == len(kept)
    for image, _, value in kept:
        assert value == max(z for n, _, z in labels if n == image)


def test_labels_of_an_earlier_stage_are_kept_and_refreshed_when_due():
    given = task()
    _, given = started(given, d_positive=0.3, d_negative=0.6)
    before = given.memory.found_labels(limit=100).keys
    later = task(seed=5, memory=given.memory)
    kept, _ = started(later, d_positive=0.3, d_negative=0.6)
    assert kept.last_search is None
    assert np.array_equal(given.memory.found_labels(limit=100).keys, before)
    fresh, _ = started(later, d_positive=0.3, d_negative=0.6, refresh=2)
    fresh.begin_epoch(2)
    assert fresh.last_search is None
    fresh.begin_epoch(3)
    assert fresh.last_search is not None
    assert not np.array_equal(given.memory.found_labels(limit=100).keys, before)


def test_resuming_brings_the_labels_back():
    _, given = started(d_positive=0.3, d_negative=0.6)
    saved = given.memory.state_dict()
    again = task(seed=9, memory=Memory(LABELS, np.arange(8), seed=0, saved=saved))
    method, _ = started(again, d_positive=0.3, d_negative=0.6)
    assert method.last_search is None
    assert np.array_equal(again.memory.found_labels(limit=100).keys, given.memory.found_labels(limit=100).keys)


def test_people_know_better_than_pseudo_labels():
    method, _ = started(d_positive=0.3, d_negative=0.6)
    everything = LabelMatrix.from_dense(np.zeros((8, 3), np.int8))
    assert method.loss(batch_of(list(range(8)), everything), Prediction(torch.zeros(8, 3)))["pseudo"] == 0


def test_nothing_marked_is_refused():
    with pytest.raises(TagfillError, match="found nothing marked"):
        started(task(labels=LabelMatrix.from_dense(np.zeros((8, 3), np.int8))))


def test_it_is_a_term():
    assert create("patchml+patchcluster").needs == {"maps", "marks", "memory"}
    with pytest.raises(TagfillError, match="does not learn from labels"):
        create("patchcluster")


@pytest.mark.parametrize(
    "options", [{"d_positive": 0.5, "d_negative": 0.4}, {"d_positive": -0.1}, {"d_negative": math.inf}]
)
def test_distances_that_make_no_sense_are_refused(options):
    with pytest.raises(TagfillError, match="give distances in 0 to 2, the smaller first"):
        PatchCluster(**options)
