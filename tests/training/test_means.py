"""Two ranks with half of a global batch each see the loss and the gradients of one rank with all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tagfill.training.devices import Devices

from .half_batches import LOSSES, step

SCRIPT = Path(__file__).with_name("half_batches.py")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    """Losses and gradients on one process and on two."""
    one = {f"{name}.{key}": tensor for name in LOSSES for key, tensor in step(Devices(), name).items()}
    out = tmp_path_factory.mktemp("means") / "gradients.safetensors"
    subprocess.run([sys.executable, SCRIPT, "2", out], check=True, capture_output=True, timeout=240)
    return [one, load_file(out)]


@pytest.mark.parametrize("loss", LOSSES)
def test_mean_losses_do_not_depend_on_the_number_of_ranks(measured: list[dict[str, Tensor]], loss: str) -> None:
    one, two = ({name: value for name, value in part.items() if name.startswith(f"{loss}.")} for part in measured)

    assert len(one) > 20
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-6)
