"""GR follows its schedule, and refuses options that mean nothing."""

import pytest
import torch

from methods.cases import LABELS, batch_of, maps_of, task_of
from reference.gr import generalized_robust as reference
from tagfill.errors import TagfillError
from tagfill.methods import create

FIRST = {"slope": 0.0, "offset": -2.0, "center": 0.5, "spread": 2.0}
LAST = {"slope": 2.0, "offset": -2.0, "center": 0.8, "spread": 0.5}


@pytest.mark.parametrize(("epoch", "share"), [(1, 0.0), (2, 0.5), (3, 1.0)])
def test_values_move_in_a_line_from_the_first_to_the_last_epoch(epoch, share):
    method, index = create("gr"), [0, 1, 2, 3, 4, 5]
    method.setup(task_of())
    method.begin_epoch(epoch)
    prediction = maps_of(index)
    now = {name: (1 - share) * FIRST[name] + share * LAST[name] for name in FIRST}
    expected = reference(
        prediction.logits.tolist(), LABELS.dense().tolist(), **now, q_present=0.01, q_absent=1.0
    )  # fmt: skip
    assert method.loss(batch_of(index), prediction)["gr"].item() == pytest.approx(expected, rel=1e-5)


def test_a_resumed_run_knows_its_epoch():
    first, second = create("gr"), create("gr")
    for method in (first, second):
        method.setup(task_of())
    first.begin_epoch(3)
    second.load_state_dict(first.state_dict())
    losses = [method.loss(batch_of([0, 1]), maps_of([0, 1]))["gr"] for method in (first, second)]
    assert torch.equal(*losses)


@pytest.mark.parametrize("wrong", [{"slope": [1.0]}, {"spread": [1.0, 0.0]}, {"q_present": 0.0}])
def test_options_that_mean_nothing_are_refused(wrong):
    with pytest.raises(TagfillError, match=r"gr"):
        create("gr", {"gr": wrong})
