"""What is known about accelerators without one: nothing mixes devices, and a step does not wait for the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

import tagfill
from losses.cases import LABELS, LOGITS, LOSSES
from losses.test_laws import EXTRA
from methods.problem import CLASSES, SITUATIONS, train
from pretended_device import DEVICE, PretendedDevice, host
from tagfill.memory.base import STEPS_TOGETHER
from tagfill.methods import METHODS
from tagfill.models import HEADS, create_head

# docs/accelerators.md gives the reasons.
WAITS_EACH_STEP = {"role": 1, "role few": 2}
WAITS_IN_A_LOSS = {"patch"}

CASES = {
    **{name: (name, {}) for name in METHODS},
    "en+scl": ("en+scl", {}),
    "en few": ("en", {"classes_per_image": 3}),
    "role few": ("role", {"classes_per_image": 3}),
    "scl few": ("scl", {"classes_per_image": 3}),
    "ll-cp strict": ("ll-cp", {"strict": True}),
    "patchml selective": (
        "patchml",
        {"image_unknown": "selective", "patch_unknown": "selective", "patch_scope": "batch"},
    ),
}


SITUATION_OF = {"bce": "everything known", "bce-ls": "everything known", "two-way": "positives and negatives"}


@pytest.mark.parametrize("case", CASES)
def test_a_method_trains_on_a_device_as_on_the_cpu_and_rarely_waits(case):
    name, options = CASES[case]
    labels = SITUATIONS[SITUATION_OF.get(name, "single positive")]
    on_cpu = train(name, labels, epochs=2, options=options, batch=3)
    with PretendedDevice() as device:
        on_device = train(name, labels, epochs=2, options=options, batch=3, device=device)

    assert torch.equal(on_device.weights, on_cpu.weights)
    assert len(on_device.waits) == STEPS_TOGETHER
    stores = 2 if "scl" in case else 1
    most = WAITS_EACH_STEP.get(case, stores / STEPS_TOGETHER)
    assert sum(map(len, on_device.waits)) <= len(on_device.waits) * most


@pytest.mark.parametrize("case", CASES)
def test_a_method_learns_in_bfloat16_what_it_learns_in_float32(case):
    """docs/accelerators.md states these distances."""
    name, options = CASES[case]
    labels = SITUATIONS[SITUATION_OF.get(name, "single positive")]
    exact = train(name, labels, epochs=5, options=options, batch=6)
    rounded = train(name, labels, epochs=5, options=options, batch=6, precision="bfloat16")

    assert len(rounded.losses) == 20
    assert np.isfinite(rounded.losses).all()
    assert rounded.losses[0] == pytest.approx(exact.losses[0], rel=1e-3)
    assert 0 < (rounded.weights - exact.weights).norm() < 0.02 * (exact.weights - exact.initial).norm()


def test_decisions_are_the_same_on_a_device():
    labels = SITUATIONS["positives and negatives"]
    for name in ("ll-r", "ep", "se", "curriculum"):
        on_cpu = train(name, labels).decisions
        with PretendedDevice() as device:
            on_device = train(name, labels, device=device).decisions
            for here, there in zip(on_device, on_cpu, strict=True):
                assert {kind: int(count) for kind, count in here.counts().items()} == {
                    kind: int(count) for kind, count in there.counts().items()
                }
                np.testing.assert_array_equal(here.image, there.image)
                np.testing.assert_array_equal(here.label, there.label)
                np.testing.assert_array_equal(here.kind, there.kind)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_gradient_are_the_same_on_a_device(name):
    logits = LOGITS.clone().requires_grad_()
    value = LOSSES[name](logits, LABELS, EXTRA)
    value.backward()
    with PretendedDevice() as device:
        arguments = [values.to(DEVICE) for values in (LOGITS, LABELS, EXTRA)]
        arguments[0].requires_grad_()
        device.reset()
        found = LOSSES[name](*arguments)
        found.backward()
        waits = device.traffic.waits

    assert torch.equal(host(found), value.detach())
    assert torch.equal(host(arguments[0].grad), logits.grad)
    assert bool(waits) == (name in WAITS_IN_A_LOSS)


@pytest.mark.parametrize("name", [name for name in HEADS if name != "ensemble"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "prediction"])
def test_a_head_runs_on_a_device_without_waiting(name, training):
    torch.manual_seed(0)
    head = create_head(name, 16, CLASSES, seed=0).train(training)
    features = torch.randn(3, 16, 4, 4)
    torch.manual_seed(1)
    expected = head(features, maps=head.has_maps)
    with PretendedDevice() as device:
        head.to(DEVICE)
        placed = features.to(DEVICE)
        head(placed, maps=head.has_maps)  # tables that depend on the grid are made once
        device.reset()
        torch.manual_seed(1)
        found = head(placed, maps=head.has_maps)
        assert device.traffic.waits == []

    torch.testing.assert_close(host(found.logits), expected.logits.detach(), rtol=1e-6, atol=1e-6)


def test_metrics_know_no_devices():
    """They are functions of numpy arrays, which are always on the host."""
    folder = Path(tagfill.__file__).parent / "metrics"
    assert [path.name for path in folder.glob("*.py") if "torch" in path.read_text(encoding="utf-8")] == []


_index = torch.ops.aten.index.Tensor  # brackets do not reach FakeTensorMode in a CPU build
MIXTURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda device, host: device + host,
    "choice": lambda device, host: torch.where(device > 0, device, host),
    "product": lambda device, host: device @ host.T,
    "joined": lambda device, host: torch.cat([device, host]),
    "mask of the device": lambda device, host: host.masked_fill(device > 0, 0.0),
}
PERMITTED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "number": lambda device, host: device + host.sum(),
    "index of the host": lambda device, host: _index(device, [host.long()]),
    "copy": lambda device, host: device + host.to(device.device),
}


@pytest.mark.parametrize("name", [*MIXTURES, *PERMITTED])
def test_the_pretended_device_refuses_what_torch_refuses(name):
    """FakeTensorMode knows the rules of torch, but not the values."""

    def outcome(device: Tensor, host: Tensor) -> str:
        try:
            return (MIXTURES | PERMITTED)[name](device, host).device.type
        except RuntimeError:
            return "refused"

    values = torch.ones(2, 2)
    with PretendedDevice():
        here = outcome(values.to(DEVICE), values)
    with FakeTensorMode():
        fake = outcome(torch.ones(2, 2, device="cuda"), torch.ones(2, 2))

    assert (here, fake) == (("refused", "refused") if name in MIXTURES else (DEVICE.type, "cuda"))


def test_the_pretended_device_counts_what_the_host_waits_for():
    values = torch.tensor([1.0, 0.0])
    with PretendedDevice() as device:
        placed = values.to(DEVICE)
        for work in (Tensor.item, Tensor.cpu, lambda tensor: tensor.tolist(), bool, Tensor.nonzero):
            work(placed[0] if work in (Tensor.item, bool) else placed)
        placed[placed > 0]
        placed[placed > 0] = 2.0  # filling does not wait
        values.to(DEVICE, non_blocking=True)

    assert device.traffic.waits == ["upload", "item", "copy", "copy", "item", "nonzero", "mask"]
    assert device.traffic.uploads == 1
