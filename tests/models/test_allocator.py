from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tagfill.models import create_backbone
from tagfill.models.allocator import disable_heap_trimming, trim_heap

FAULTS = """
import resource, torch
from tagfill.models.allocator import disable_heap_trimming
kept = {keep} and disable_heap_trimming()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(16, 1024, 1024)
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(keep: bool) -> tuple[bool, int]:
    """Count page faults of twenty tensors of 64 MB one after the other, in a process that made twenty before."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(keep=keep)], check=True, capture_output=True, text=True
    ).stdout.split()
    return done[0] == "1", int(done[1])


@pytest.mark.long
def test_kept_memory_causes_no_page_faults():
    kept, faults = page_faults(keep=True)
    assert not kept or faults < 0.1 * page_faults(keep=False)[1]


def test_values_do_not_depend_on_it():
    def gradient():
        backbone = create_backbone("mobilenetv2_035", image_size=64).train()
        backbone(torch.full((2, 3, 64, 64), 9, dtype=torch.uint8)).sum().backward()
        return torch.cat([p.grad.flatten() for p in backbone.parameters()])

    before = gradient()
    disable_heap_trimming()
    trim_heap()
    assert torch.equal(gradient(), before)


def test_in_place_and_out_of_place_activations_agree():
    def gradient(inplace):
        backbone = create_backbone("mobilenetv2_035", image_size=64).train()
        for module in backbone.modules():
            if isinstance(module, torch.nn.ReLU6):
                assert not module.inplace
                module.inplace = inplace
        backbone(torch.full((2, 3, 64, 64), 9, dtype=torch.uint8)).sum().backward()
        return torch.cat([p.grad.flatten() for p in backbone.parameters()])

    assert torch.equal(gradient(True), gradient(False))
