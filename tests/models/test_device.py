"""Choosing the device of a network."""

from __future__ import annotations

import pytest
import torch

from tagfill.errors import TagfillError
from tagfill.models import choose_device


@pytest.mark.parametrize(("there", "expected"), [((), "cpu"), (("cuda", "mps"), "cuda"), (("mps",), "mps")])
def test_auto_is_an_accelerator_if_there_is_one(
    there: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in there)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in there)

    assert choose_device("auto").type == expected
    assert choose_device("cpu").type == "cpu"


def test_a_missing_device_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(TagfillError, match="There is no device 'cuda' on this machine; choose auto or cpu"):
        choose_device("cuda")
    with pytest.raises(TagfillError, match="device is 'gpu'; give one of auto, cpu, cuda, mps"):
        choose_device("gpu")
