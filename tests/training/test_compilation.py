"""`torch.compile` of backbone and head changes how fast a run is, not what it learns."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tagfill
from tagfill.errors import RunError
from tagfill.models import HEADS, create
from tagfill.models.compilation import allow_any_batch_size, compile_errors, compile_forward
from tagfill.training import Run, make_recipe

from .conftest import Material


def train(material: Material, out: Path, **settings: Any) -> Run:
    """One epoch of the whole network, whose last batch is smaller than the others."""
    stages = [{"train": "all", "epochs": 1, "freeze": ["batch-norm"], "optimizer": {"lr": 1e-3}}]
    return tagfill.train(
        material.single, out=out, method="an", batch_size=12, stages=stages, **material.settings, **settings
    )


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.model_folder / "model.safetensors")


def test_a_compiled_run_ends_with_the_same_weights(material: Material, tmp_path: Path) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    plain = weights(train(material, tmp_path / "plain"))
    compiled = weights(train(material, tmp_path / "compiled", compile="aot_eager"))

    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] == 2  # training and validation, for batches of any size
    assert not counters["graph_break"]
    assert compiled.keys() == plain.keys()
    assert all(torch.equal(compiled[name], value) for name, value in plain.items())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning")  # of torch, when it imports its own compiler
def test_inductor_learns_the_same_except_for_rounding(material: Material, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    torch._dynamo.reset()
    plain = weights(train(material, tmp_path / "plain"))
    compiled = weights(train(material, tmp_path / "compiled", compile="inductor"))

    assert any(not torch.equal(compiled[name], value) for name, value in plain.items())
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.long
@pytest.mark.parametrize("head", [name for name in HEADS if name != "ensemble"])
def test_a_compiled_head_gives_the_same_gradients(head: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    plain, compiled = (
        create("test_vit" if head == "tscam" else "test_resnet", head, ["cat", "dog"], image_size=64, seed=1)
        for _ in range(2)
    )
    compile_forward(compiled, "aot_eager")
    for size in (4, 3):
        pixels = torch.randint(0, 256, (size, 3, 64, 64), dtype=torch.uint8)
        for model in (plain, compiled):
            torch.manual_seed(2)  # for dropout
            allow_any_batch_size(pixels)
            model.train()(pixels, maps=model.head.has_maps).logits.sum().backward()
    assert not torch._dynamo.utils.counters["graph_break"]
    for (name, expected), found in zip(plain.named_parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-5, atol=1e-5, msg=name)


def test_the_setting_is_part_of_the_hash_only_if_it_is_used() -> None:
    plain, compiled, named = (
        make_recipe({"dataset": "photos", "method": "an", **more})
        for more in ({}, {"compile": True}, {"compile": "inductor"})
    )
    assert compiled == named
    assert compiled.hash() != plain.hash()
    assert plain.hash() == make_recipe({"dataset": "photos", "method": "an", "compile": False}).hash()


def test_a_failing_compiler_gets_a_sentence() -> None:
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("no compiler here")

    with (
        pytest.raises(RunError, match=r"torch\.compile failed .*no compiler here.* without --compile"),
        compile_errors(),
    ):
        torch.compile(torch.sin, backend=broken)(torch.ones(2))
