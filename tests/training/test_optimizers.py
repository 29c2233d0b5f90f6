"""Parameter groups and their learning rates."""

from __future__ import annotations

import pytest
import torch

from tagfill.models import create
from tagfill.training.optimizers import (
    LeanAdam,
    Optimizer,
    average_state,
    build_optimizer,
    load_average_state,
    load_optimizer_state,
    optimizer_state,
    weight_average,
)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return create("test_efficientnet", "cam", ["cat", "dog"], image_size=64)


def test_head_has_its_own_multiple(model: torch.nn.Module) -> None:
    optimizer = build_optimizer(Optimizer(head_multiplier=10), model)

    assert [group["multiplier"] for group in optimizer.param_groups] == [1, 10]
    assert len(optimizer.param_groups[1]["params"]) == 2


def test_vectors_can_be_kept_from_decaying(model: torch.nn.Module) -> None:
    optimizer = build_optimizer(Optimizer(name="adamw", weight_decay=0.1, decay_vectors=False), model)

    decays = {(p.ndim > 1, group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]}
    assert decays == {(True, 0.1), (False, 0.0)}


def test_frozen_weights_are_left_out(model: torch.nn.Module) -> None:
    model.freeze(backbone=True)

    optimizer = build_optimizer(Optimizer(), model)

    model.freeze(backbone=False)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 2


@pytest.mark.parametrize(("name", "kind"), [("adam", "Adam"), ("adamw", "AdamW"), ("sgd", "SGD")])
def test_optimizer_is_torch_s_own(model: torch.nn.Module, name: str, kind: str) -> None:
    assert type(build_optimizer(Optimizer(name=name), model)).__name__ == kind


def test_adam_is_fused_where_a_backbone_trains(model: torch.nn.Module) -> None:
    top, head = model.above("blocks.1"), model.above("features")

    fused = [build_optimizer(Optimizer(), module).defaults["fused"] for module in (model, top, head)]

    assert fused == [True, True, None]
    assert build_optimizer(Optimizer(), model, scaled=True).defaults["fused"] is None


def test_a_run_that_began_without_fused_kernels_continues_without(model: torch.nn.Module) -> None:
    before, after = (build_optimizer(Optimizer(), model, scaled=scaled) for scaled in (True, False))

    load_optimizer_state(after, *optimizer_state(before))

    assert [group["fused"] for group in after.param_groups] == [None, None]


def test_fused_adam_takes_the_same_steps() -> None:
    steps = []
    for scaled in (False, True):
        model = create("test_efficientnet", "cam", ["cat", "dog"], image_size=64)
        optimizer = build_optimizer(Optimizer(lr=0.01), model, scaled=scaled)
        for step in range(3):
            for weights in model.parameters():
                weights.grad = torch.sin(weights.detach() + step)
            optimizer.step()
        steps.append(model.state_dict())

    assert all(torch.allclose(steps[0][name], steps[1][name], atol=1e-6) for name in steps[0])


@pytest.mark.parametrize(
    "settings", [Optimizer(), Optimizer(weight_decay=0.1), Optimizer(name="adamw", weight_decay=1)]
)
def test_lean_adam_has_the_bits_and_the_state_of_torch_s(settings: Optimizer) -> None:
    finals, states = [], []
    for lean in (False, True):
        model = create("test_efficientnet", "cam", ["cat", "dog"], image_size=64)
        model.freeze(backbone=True)
        optimizer = build_optimizer(settings, model)
        assert LeanAdam.suits(optimizer)
        stepper = LeanAdam(optimizer) if lean else optimizer
        for step in range(6):
            for weights in model.head.parameters():
                weights.grad = torch.sin(weights.detach() + step)
            stepper.step()
            if step == 2:  # as a resumed run
                load_optimizer_state(optimizer, *optimizer_state(optimizer))
        finals.append(model.head.state_dict())
        states.append(optimizer_state(optimizer)[0])

    for plain, other in (finals, states):
        assert list(plain) == list(other)
        assert all(torch.equal(plain[name], other[name]) for name in plain)


def test_lean_adam_leaves_other_optimizers_to_torch(model: torch.nn.Module) -> None:
    assert not LeanAdam.suits(build_optimizer(Optimizer(name="sgd"), model))
    assert not LeanAdam.suits(build_optimizer(Optimizer(), model))  # fused


def test_loaded_moments_belong_to_the_same_weights_in_any_memory_layout() -> None:
    """Files keep no layout, and fused kernels read weights and moments in the order of memory."""

    def step(layer: torch.nn.Conv2d, optimizer: torch.optim.Optimizer, number: int) -> None:
        layer.weight.grad = torch.sin(layer.weight.detach() + number)
        optimizer.step()

    def create_layer() -> tuple[torch.nn.Conv2d, torch.optim.Optimizer]:
        torch.manual_seed(0)
        layer = torch.nn.Conv2d(3, 5, 3, bias=False).to(memory_format=torch.channels_last)
        return layer, torch.optim.Adam(layer.parameters(), lr=0.1, fused=True)

    (whole, optimizer), (resumed, other) = create_layer(), create_layer()
    step(whole, optimizer, 0)
    tensors, groups = optimizer_state(optimizer)
    saved = {name: value.clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    resumed.load_state_dict(whole.state_dict())
    load_optimizer_state(other, saved, groups)
    step(whole, optimizer, 1)
    step(resumed, other, 1)

    assert torch.equal(whole.weight, resumed.weight)


def test_weight_average_follows_the_formula() -> None:
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, 1.0)
    average = weight_average(module, 0.9)

    expected = 1.0
    for step in range(200):
        torch.nn.init.constant_(module.weight, float(step))
        average.update_parameters(module)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step

    assert average.module.weight.item() == pytest.approx(expected, rel=1e-5)


def test_weight_average_continues_after_saving() -> None:
    module = torch.nn.Linear(2, 2)
    first, second = weight_average(module, 0.9), weight_average(torch.nn.Linear(2, 2), 0.9)
    first.update_parameters(module)
    load_average_state(second, average_state(first))
    torch.nn.init.zeros_(module.weight)

    first.update_parameters(module)
    second.update_parameters(module)

    assert torch.equal(first.module.weight, second.module.weight)
