from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from memory.cases import single_positives, task_of
from reference import top_k_estimates as reference
from tagfill.contract import Batch, Prediction
from tagfill.errors import TagfillError
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.losses import role
from tagfill.memory import Estimates, Memory, SavedPart, Shard
from tagfill.memory.estimates import DenseAdam
from tagfill.methods import create

IMAGES, CLASSES, FEATURES, LR, KAPPA = 11, 4, 5, 1e-2, 1.5
LABELS = single_positives(IMAGES, CLASSES)
INPUTS = torch.randn(IMAGES, FEATURES, generator=torch.Generator().manual_seed(1))
VISITS = [[0, 3, 7], [7, 1, 0], [2, 3, 10], [0, 1, 2], [5, 7, 9], [3, 0, 10], [8, 4, 6]]
BATCHES = [torch.tensor(rows) for rows in VISITS]


def whole(seed: int = 7, **options) -> Estimates:
    return Estimates(LABELS, Shard(np.arange(IMAGES)), seed=seed, **options).allocate()


def table(estimates: Estimates, images: np.ndarray | None = None) -> torch.Tensor:
    """The estimates of all images, or of some, after all steps so far."""
    return estimates.read(torch.from_numpy(np.arange(len(estimates.values)) if images is None else images))


def labels_of(index: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(LABELS.rows(index.numpy()))


def test_unknown_entries_start_between_four_and_six_tenths():
    unknown = table(whole()).sigmoid()[torch.from_numpy(LABELS.dense() == -1)]
    assert 0.4 <= unknown.min() < 0.45
    assert 0.55 < unknown.max() <= 0.6


@pytest.mark.parametrize(("state", "start"), [(1, 5.293305), (0, -5.293305)], ids=["present", "absent"])
def test_observed_entries_start_near_certainty(state, start):
    known = table(whole())[torch.from_numpy(LABELS.dense() == state)]
    assert len(known) > 0
    assert known.tolist() == pytest.approx([start] * len(known), abs=1e-6)


def test_another_seed_starts_elsewhere():
    assert not torch.equal(table(whole(7)), table(whole(8)))


def joint_training() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Classifier and table after each step, both in one Adam on the one scalar of the paper."""
    classifier = linear()
    estimates = torch.nn.Parameter(table(whole()).clone())
    adam = torch.optim.Adam([{"params": classifier.parameters(), "lr": LR}, {"params": [estimates], "lr": 10 * LR}])
    after = []
    for index in BATCHES:
        adam.zero_grad()
        role(classifier(INPUTS[index]), labels_of(index), estimates[index], expected=KAPPA).backward()
        adam.step()
        after.append((estimates.detach().clone(), classifier.weight.detach().clone()))
    return after


def linear() -> torch.nn.Linear:
    torch.manual_seed(5)
    return torch.nn.Linear(FEATURES, CLASSES)


def test_training_apart_equals_the_published_joint_adam():
    """The table is stepped after the classifier, by its own optimizer, and both end where one Adam would bring them."""
    memory = Memory(LABELS, np.arange(IMAGES), seed=7)
    method = create("role")
    method.setup(task_of(memory, LABELS, expected=KAPPA, lr=LR, width=FEATURES))
    classifier = linear()
    adam = torch.optim.Adam(classifier.parameters(), lr=LR)
    for index, (estimates, weight) in zip(BATCHES, joint_training(), strict=True):
        batch = Batch(index, labels_of(index), INPUTS[index], Geometry.whole(len(index)))
        adam.zero_grad()
        logits = classifier(batch.inputs)
        torch.stack(list(method.loss(batch, Prediction(logits)).values())).sum().backward()
        adam.step()
        with torch.no_grad():
            method.observe(batch, Prediction(logits.detach()))
        torch.testing.assert_close(table(memory.estimates()), estimates, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(classifier.weight, weight, rtol=1e-6, atol=1e-6)


def step(estimates: Estimates, index: torch.Tensor, number: int) -> None:
    """A gradient that depends on the image alone, so that shards see the rows that the whole sees."""
    gradient = torch.sin(index[:, None] + torch.arange(CLASSES) + float(number))
    estimates.step(index, gradient, lr=0.1)


def test_rows_outside_the_batch_keep_moving():
    estimates = whole()
    step(estimates, torch.tensor([2]), 0)
    before = table(estimates).clone()
    step(estimates, torch.tensor([5]), 1)
    assert not torch.equal(table(estimates)[2], before[2])


def test_rows_never_visited_stay():
    estimates = whole()
    before = table(estimates).clone()
    step(estimates, torch.tensor([2, 5]), 0)
    untouched = [row for row in range(IMAGES) if row not in (2, 5)]
    assert torch.equal(table(estimates)[untouched], before[untouched])


@pytest.mark.parametrize("world", [2, 3])
def test_shards_hold_the_rows_of_the_whole(world):
    every = whole()
    shards = [Shard(np.arange(rank, IMAGES, world)) for rank in range(world)]
    parts = [Estimates(LABELS, shard, seed=7).allocate() for shard in shards]
    for number, index in enumerate(BATCHES):
        step(every, index, number)
        for rank, part in enumerate(parts):
            step(part, index[index % world == rank], number)
    for shard, part in zip(shards, parts, strict=True):
        assert torch.equal(table(part, shard.index), table(every)[shard.index])


@pytest.mark.parametrize("saved_after", [0, 3])
def test_saved_estimates_go_on_as_if_nothing_had_happened(saved_after):
    unbroken, again = whole(), whole(seed=99)
    for number, index in enumerate(BATCHES):
        if number == saved_after:
            again.load_state_dict({name: value.clone() for name, value in unbroken.state_dict().items()})
        if number >= saved_after:
            step(again, index, number)
        step(unbroken, index, number)
    assert torch.equal(table(again), table(unbroken))


def test_loading_does_not_tie_the_two_together():
    origin, again = whole(), whole()
    step(origin, BATCHES[0], 0)
    again.load_state_dict(origin.state_dict())
    step(again, BATCHES[1], 1)
    third = whole()
    third.load_state_dict(origin.state_dict())
    step(third, BATCHES[1], 1)
    assert torch.equal(table(third), table(again))


def test_bytes_count_table_and_moments():
    labels, shard = LabelMatrix.from_dense(np.full((6, 5), -1, dtype=np.int8)), Shard(np.arange(0, 6, 2))
    estimates = Estimates(labels, shard, seed=0).allocate()
    step_index = torch.tensor([0])
    estimates.step(step_index, torch.ones(1, 5), lr=0.1)
    state = estimates.state_dict().values()
    tables = {tensor.data_ptr(): tensor.nbytes for tensor in state if len(shard) in tensor.shape}
    assert estimates.bytes == sum(tables.values())


def test_the_start_of_an_image_does_not_depend_on_the_others():
    part = Estimates(LABELS, Shard(np.array([4, 9])), seed=7).allocate()
    assert torch.equal(table(part, np.array([4, 9])), table(whole())[[4, 9]])


SPARSE_IMAGES, SPARSE_CLASSES = 7, 3
SPARSE_LABELS = single_positives(SPARSE_IMAGES, SPARSE_CLASSES)
SPARSE_VISITS = [torch.tensor(rows) for rows in ([0, 3, 6], [3, 1], [6, 0, 2], [3, 4], [0, 6])]
ROW_WISE = ["sparse_adam", "sgd"]


def sparse_whole(optimizer: str, seed: int = 7, index: np.ndarray | None = None) -> Estimates:
    return Estimates(
        SPARSE_LABELS, Shard(np.arange(SPARSE_IMAGES) if index is None else index), seed=seed, optimizer=optimizer
    ).allocate()


def gradient(index: torch.Tensor, number: int) -> torch.Tensor:
    return torch.sin(index[:, None] + torch.arange(SPARSE_CLASSES) + float(number))


def lazy_adam(start: list[list[float]], lr: float) -> list[list[float]]:
    """Adam with b1 = 0.9 and b2 = 0.999, entry by entry: rows outside of a batch keep value and moments."""
    table = [list(row) for row in start]
    first, second = ([[0.0] * SPARSE_CLASSES for _ in table] for _ in range(2))
    for number, index in enumerate(SPARSE_VISITS):
        slopes = gradient(index, number).tolist()
        for row, slope in zip(index.tolist(), slopes, strict=True):
            for label, g in enumerate(slope):
                first[row][label] = 0.9 * first[row][label] + 0.1 * g
                second[row][label] = 0.999 * second[row][label] + 0.001 * g * g
                mean = first[row][label] / (1 - 0.9 ** (number + 1))
                spread = (second[row][label] / (1 - 0.999 ** (number + 1))) ** 0.5
                table[row][label] -= lr * mean / (spread + 1e-8)
    return table


def test_sparse_adam_equals_the_formula_on_the_rows_of_a_batch():
    estimates = sparse_whole("sparse_adam")
    start = estimates.values.tolist()
    for number, index in enumerate(SPARSE_VISITS):
        estimates.step(index, gradient(index, number), lr=0.1)
    torch.testing.assert_close(estimates.values.detach(), torch.tensor(lazy_adam(start, 0.1)), rtol=1e-4, atol=1e-5)


def test_sgd_moves_against_the_gradient():
    estimates = sparse_whole("sgd")
    start = estimates.values.detach().clone()
    estimates.step(SPARSE_VISITS[0], gradient(SPARSE_VISITS[0], 0), lr=0.1)
    start[SPARSE_VISITS[0]] -= 0.1 * gradient(SPARSE_VISITS[0], 0)
    torch.testing.assert_close(estimates.values.detach(), start)


@pytest.mark.parametrize("optimizer", ROW_WISE)
def test_rows_outside_the_batch_stand_still(optimizer):
    estimates = sparse_whole(optimizer)
    estimates.step(torch.tensor([2]), gradient(torch.tensor([2]), 0), lr=0.1)
    before = estimates.values.detach().clone()
    estimates.step(torch.tensor([5]), gradient(torch.tensor([5]), 1), lr=0.1)
    still = [row for row in range(SPARSE_IMAGES) if row != 5]
    assert torch.equal(estimates.values[still], before[still])


@pytest.mark.parametrize("optimizer", ROW_WISE)
@pytest.mark.parametrize("saved_after", [0, 3])
def test_sparse_saved_estimates_go_on_as_if_nothing_had_happened(optimizer, saved_after):
    unbroken, again = sparse_whole(optimizer), sparse_whole(optimizer, seed=99)
    for number, index in enumerate(SPARSE_VISITS):
        if number == saved_after:
            again.load_state_dict({name: value.clone() for name, value in unbroken.state_dict().items()})
        if number >= saved_after:
            again.step(index, gradient(index, number), lr=0.1)
        unbroken.step(index, gradient(index, number), lr=0.1)
    assert torch.equal(again.values, unbroken.values)


@pytest.mark.parametrize("optimizer", ROW_WISE)
def test_estimates_move_with_their_image(optimizer):
    all_images, parts = torch.arange(SPARSE_IMAGES), [np.arange(rank, SPARSE_IMAGES, 2) for rank in range(2)]
    saved = []
    for part in parts:
        estimates, index = sparse_whole(optimizer, index=part), torch.from_numpy(part)
        estimates.step(index, gradient(index, 0), lr=0.1)
        saved.append(SavedPart(Shard(part), estimates.state_dict()))
    moved, expected = sparse_whole(optimizer, seed=99), sparse_whole(optimizer)
    moved.reshard(saved)
    expected.step(all_images, gradient(all_images, 0), lr=0.1)
    for estimates in (moved, expected):
        estimates.step(all_images, gradient(all_images, 1), lr=0.1)
    assert torch.equal(moved.values, expected.values)


@pytest.mark.parametrize(("optimizer", "tables"), [("dense_adam", 3), ("sparse_adam", 3), ("sgd", 1)])
def test_bytes_count_what_the_optimizer_keeps(optimizer, tables):
    estimates = sparse_whole(optimizer)
    estimates.step(SPARSE_VISITS[0], gradient(SPARSE_VISITS[0], 0), lr=0.1)
    kept = [estimates.values, *estimates.state_dict().values()]
    found = {tensor.data_ptr(): tensor.nbytes for tensor in kept if tensor.shape == estimates.values.shape}
    last_steps = 8 * SPARSE_IMAGES if optimizer == "dense_adam" else 0
    assert estimates.bytes == sum(found.values()) + last_steps
    assert len(found) == tables


def extreme(memory: Memory) -> Estimates:
    """A table that is certain of much, and an optimizer that has gathered momentum."""
    estimates = memory.estimates()
    for number, index in enumerate(SPARSE_VISITS):
        estimates.step(index, gradient(index, number), lr=10.0)
    return estimates


def test_a_new_stage_begins_with_the_bounded_probabilities_and_no_momentum():
    """φ = logit(clip(q, 1e-5, 1 − 1e-5)); a step without a gradient then moves nothing."""
    memory = Memory(SPARSE_LABELS, np.arange(SPARSE_IMAGES), seed=7)
    estimates = extreme(memory)
    before = table(estimates).double()
    memory.begin_stage()
    clipped = before.sigmoid().clamp(1e-5, 1 - 1e-5).logit().float()
    torch.testing.assert_close(table(estimates), clipped, rtol=1e-4, atol=1e-5)
    assert before.abs().max() > 12
    estimates.step(torch.tensor([0]), torch.zeros(1, SPARSE_CLASSES), lr=1.0)
    torch.testing.assert_close(table(estimates), clipped, rtol=1e-4, atol=1e-5)


def test_the_same_from_what_the_best_epoch_saved():
    one = Memory(SPARSE_LABELS, np.arange(SPARSE_IMAGES), seed=7)
    extreme(one)
    saved = {name: value.clone() for name, value in one.state_dict().items()}
    one.begin_stage()
    warm = Memory(SPARSE_LABELS, np.arange(SPARSE_IMAGES), seed=7, saved=saved, warm=True).estimates()
    assert torch.equal(table(warm), table(one.estimates()))


def test_a_run_that_is_resumed_keeps_its_momentum():
    one = Memory(SPARSE_LABELS, np.arange(SPARSE_IMAGES), seed=7)
    estimates = extreme(one)
    resumed = Memory(SPARSE_LABELS, np.arange(SPARSE_IMAGES), seed=7, saved=one.state_dict()).estimates()
    for some in (estimates, resumed):
        some.step(torch.tensor([0]), torch.zeros(1, SPARSE_CLASSES), lr=1.0)
    assert torch.equal(table(resumed), table(estimates))


def test_a_stage_may_ask_for_a_table_that_the_one_before_did_not_have():
    Memory(SPARSE_LABELS, np.arange(SPARSE_IMAGES), seed=7, saved={}, warm=True).estimates()


TOP_K_IMAGES, TOP_K_CLASSES, K, TOP_K_KAPPA, TOP_K_LR = 8, 6, 3, 1.5, 1e-2
TOP_K_LABELS = single_positives(TOP_K_IMAGES, TOP_K_CLASSES)
ALL_IMAGES = torch.arange(TOP_K_IMAGES)
TOP_K_VISITS = [[0, 3, 7], [7, 1, 0], [2, 3, 6], [0, 1, 2], [4, 7, 3], [3, 0, 1]]


def logits_of(number: int) -> torch.Tensor:
    return torch.randn(len(TOP_K_VISITS[number]), TOP_K_CLASSES, generator=torch.Generator().manual_seed(number))


def top_k_table(shard: np.ndarray | None = None, *, count: int | None = K, seed: int = 7, **options) -> Estimates:
    kept = Shard(np.arange(TOP_K_IMAGES) if shard is None else shard)
    return Estimates(TOP_K_LABELS, kept, seed=seed, count=count, **options).allocate()


def visit(estimates: Estimates, number: int, images: list[int] | None = None) -> None:
    """A gradient that depends on the image alone, so that shards see the rows that the whole sees."""
    mine = [at for at, n in enumerate(TOP_K_VISITS[number]) if images is None or n in images]
    index = torch.tensor(TOP_K_VISITS[number])[mine]
    estimates.keep(index, logits_of(number)[mine])
    estimates.step(index, torch.sin(index[:, None] + torch.arange(TOP_K_CLASSES) + float(number)), lr=0.1)


def method_of(memory: Memory, **options):
    method = create("role", {"role": options})
    method.setup(task_of(memory, TOP_K_LABELS, expected=TOP_K_KAPPA, lr=TOP_K_LR))
    return method


def batch_of(number: int) -> Batch:
    index = torch.tensor(TOP_K_VISITS[number])
    labels = torch.from_numpy(TOP_K_LABELS.rows(index.numpy()))
    return Batch(index, labels, torch.zeros(len(index), 1), Geometry.whole(len(index)))


def test_training_equals_a_loop_over_entries():
    memory = Memory(TOP_K_LABELS, np.arange(TOP_K_IMAGES), seed=7)
    method = method_of(memory, classes_per_image=K)
    estimates = memory.estimates(classes_per_image=K)
    start = estimates.read(ALL_IMAGES).tolist()
    for number in range(len(TOP_K_VISITS)):
        method.observe(batch_of(number), Prediction(logits_of(number)))
    visits = [(images, logits_of(number).tolist()) for number, images in enumerate(TOP_K_VISITS)]
    expected = reference.trained(start, TOP_K_LABELS.dense().tolist(), visits, K, TOP_K_KAPPA, 10 * TOP_K_LR)
    torch.testing.assert_close(estimates.read(ALL_IMAGES), torch.tensor(expected), rtol=1e-3, atol=1e-4)
    assert int((estimates.read(ALL_IMAGES) < -11).sum()) == 7 * (TOP_K_CLASSES - K)  # image 5 was never visited


def test_the_classifier_is_taught_what_the_table_shows():
    memory = Memory(TOP_K_LABELS, np.arange(TOP_K_IMAGES), seed=7)
    method = method_of(memory, classes_per_image=K)
    for number in (0, 1):
        method.observe(batch_of(number), Prediction(logits_of(number)))
    batch, prediction = batch_of(0), Prediction(logits_of(3))
    estimates = memory.estimates(classes_per_image=K).read(batch.index)
    expected = role(prediction.logits, batch.labels, estimates, expected=TOP_K_KAPPA)
    assert float(sum(method.loss(batch, prediction).values())) == pytest.approx(float(expected))


def test_before_its_first_visit_an_image_shows_what_all_classes_start_with():
    assert torch.equal(top_k_table().read(ALL_IMAGES), top_k_table(count=None).read(ALL_IMAGES))


@pytest.mark.parametrize("optimizer", ["dense_adam", "sparse_adam", "sgd"])
def test_keeping_all_classes_is_the_dense_table_bit_for_bit(optimizer):
    few, every = top_k_table(count=TOP_K_CLASSES, optimizer=optimizer), top_k_table(count=None, optimizer=optimizer)
    for number in range(len(TOP_K_VISITS)):
        visit(few, number)
        visit(every, number)
    assert torch.equal(few.read(ALL_IMAGES), every.read(ALL_IMAGES))


@pytest.mark.parametrize("optimizer", ["dense_adam", "sparse_adam", "sgd"])
def test_given_the_same_gradients_kept_classes_move_as_in_the_dense_table(optimizer):
    few, every = top_k_table(optimizer=optimizer), top_k_table(count=None, optimizer=optimizer)
    for number in range(len(TOP_K_VISITS)):
        visit(few, number)
        visit(every, number)
    kept = few.classes[few.classes[:, 0] >= 0].long()
    seen = few.classes[:, 0] >= 0
    shown = [estimates.read(ALL_IMAGES)[seen].gather(1, kept) for estimates in (few, every)]
    torch.testing.assert_close(*shown, rtol=1e-6, atol=1e-6)


def test_as_many_classes_as_there_are_is_all_of_them():
    assert Memory(TOP_K_LABELS, np.arange(3), seed=0).estimates(classes_per_image=TOP_K_CLASSES).classes is None


def test_annotated_classes_are_kept():
    estimates = top_k_table()
    estimates.keep(ALL_IMAGES, torch.where(torch.from_numpy(TOP_K_LABELS.dense() == 1), -9.0, 1.0))
    positive = torch.from_numpy(np.argmax(TOP_K_LABELS.dense() == 1, axis=1))
    assert (estimates.classes == positive[:, None]).any(1).all()


def test_more_annotated_classes_than_are_kept_are_refused():
    labels = LabelMatrix.from_dense(np.ones((2, 5), dtype=np.int8))
    with pytest.raises(TagfillError, match="The estimates are to keep 3 classes per image, but an image has 5"):
        Memory(labels, np.arange(2), seed=0).estimates(classes_per_image=3)


@pytest.mark.parametrize("saved_after", [0, 3])
def test_top_k_saved_estimates_go_on_as_if_nothing_had_happened(saved_after):
    unbroken, again = top_k_table(), top_k_table()
    for number in range(len(TOP_K_VISITS)):
        if number == saved_after:
            again.load_state_dict({name: value.clone() for name, value in unbroken.state_dict().items()})
        if number >= saved_after:
            visit(again, number)
        visit(unbroken, number)
    assert torch.equal(again.read(ALL_IMAGES), unbroken.read(ALL_IMAGES))


def test_shards_hold_the_rows_of_the_whole_and_move_with_their_image():
    every, shards = top_k_table(), [np.arange(rank, TOP_K_IMAGES, 2) for rank in range(2)]
    parts = [top_k_table(shard) for shard in shards]
    for number in range(3):
        visit(every, number)
        for shard, part in zip(shards, parts, strict=True):
            visit(part, number, shard.tolist())
    moved = top_k_table()
    moved.reshard(
        [SavedPart(Shard(s), part.state_dict(), dict[str, Path]()) for s, part in zip(shards, parts, strict=True)]
    )
    for estimates in (every, moved):
        visit(estimates, 3)
    assert torch.equal(moved.read(ALL_IMAGES), every.read(ALL_IMAGES))


@pytest.mark.parametrize("optimizer", ["dense_adam", "sparse_adam", "sgd"])
def test_bytes_are_those_of_all_tables(optimizer):
    estimates = top_k_table(optimizer=optimizer)
    visit(estimates, 0)
    kept = sum(tensor.nbytes for tensor in estimates.state_dict().values() if TOP_K_IMAGES in tensor.shape)
    assert estimates.bytes == kept


def test_dense_adam_is_that_of_torch_whenever_a_row_is_read():
    """Rows are not visited for one to several hundred steps, learning rates go up and down, some gradients vanish."""
    rows, steps, draws = 23, 600, torch.Generator().manual_seed(3)
    start = torch.randn(rows, 13, generator=draws)
    theirs = torch.nn.Parameter(start.double())
    dense, adam = DenseAdam(start.clone()), torch.optim.Adam([theirs], foreach=False)
    for number in range(steps):
        chosen = torch.randperm(rows if number < 300 else 4, generator=draws)[:3]
        gradient = 10.0 ** (number % 5 - 3) * torch.randn(3, 13, generator=draws)
        gradient[:, :4] *= torch.tensor([1e-4, 1e-6, 1e-8, 0.0])  # down to those that ε outweighs
        theirs.grad = torch.zeros_like(theirs)
        theirs.grad[chosen] = gradient.double()
        adam.param_groups[0]["lr"] = lr = 1e-2 * (1 + number % 7)
        adam.step()
        dense.step(chosen, gradient, lr)
        if number % 40 == 39:
            torch.testing.assert_close(dense.read(torch.arange(rows)).double(), theirs.detach(), rtol=1e-5, atol=1e-5)


def test_a_table_of_version_0_1_goes_on_from_where_it_was():
    """Its rows are all up to date, and it kept no learning rates."""
    past, start = torch.arange(6.0).reshape(3, 2) - 2, torch.ones(3, 2)
    old = {"step": torch.tensor(5.0), "exp_avg": past / 10, "exp_avg_sq": past.square() / 100}
    theirs = torch.nn.Parameter(start.clone())
    dense, adam = DenseAdam(start.clone()), torch.optim.Adam([theirs], lr=0.1, foreach=False)
    dense.load_state_dict(old)
    adam.state[theirs] = {name: value.clone() for name, value in old.items()}
    for row in (0, 1):
        theirs.grad = torch.zeros_like(theirs)
        theirs.grad[row] = 1.0
        adam.step()
        dense.step(torch.tensor([row]), torch.ones(1, 2), 0.1)
    torch.testing.assert_close(dense.read(torch.arange(3)), theirs.detach(), rtol=1e-6, atol=1e-6)
