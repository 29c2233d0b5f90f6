from __future__ import annotations

import torch

from tagfill.losses import top_k_mask


def test_the_likeliest_of_each_row_the_first_among_equals():
    logits = torch.tensor([[5.0, 1.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    among = torch.tensor([[False, True, True, True], [False, False, False, True]])
    assert top_k_mask(logits, among, 1).tolist() == [[False, False, True, False], [False, False, False, True]]
    assert top_k_mask(logits, among, 9).equal(among)
    assert not top_k_mask(logits, among, 0).any()
