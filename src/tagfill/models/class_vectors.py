"""Text vectors of classes, from which heads can begin: a safetensors file with one vector per class, under its name.

    W_c = scale · t_c,   b_c = bias        `linear` and `cam`: the untrained logit of class c is scale · ⟨t_c, f⟩ + bias
    t⁺_c = t_c,   t⁻_c = mean of all t     `dual`

Features of the `_joint` backbones have length 1 in the space of the texts (`tagfill.models.joint`), so there ⟨t_c, f⟩
is the cosine by which CLIP classifies without any label. Vectors are scaled to length 1 when they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from tagfill.errors import TagfillError
from tagfill.io import atomic_write


def write_class_vectors(path: str | Path, classes: Sequence[str], vectors: NDArray[np.floating]) -> None:
    """Write the vectors of classes, L×D, to a safetensors file."""
    rows = torch.from_numpy(np.array(vectors, dtype=np.float32))
    with atomic_write(Path(path)) as file:
        file.write(save({name: row.clone() for name, row in zip(classes, rows, strict=True)}))


def read_class_vectors(path: str | Path, classes: Sequence[str], channels: int, backbone: str) -> Tensor:
    """Read the vectors of some classes, scaled to length 1: L×D.

    Args:
        path: the safetensors file; it may have vectors of other classes too.
        classes: names, in the order of the logits.
        channels: D of the features.
        backbone: name of the backbone, for errors.

    Raises:
        TagfillError: if a class has no vector, or vectors do not have the size of the features.
    """
    check_vectors_file(path)
    rows = []
    try:
        with safe_open(path, framework="pt") as file:
            known = set(file.keys())
            for name in classes:
                if name not in known:
                    raise TagfillError(
                        f"{path} has no vector of the class '{name}'; write the vectors of all classes, as "
                        "'tagfill evidence text DATASET --vectors FILE' does."
                    )
                rows.append(file.get_tensor(name).float().flatten())
    except (SafetensorError, OSError) as error:
        raise TagfillError(f"{path} cannot be read as a safetensors file of text vectors ({error}).") from None
    for name, row in zip(classes, rows, strict=True):
        if len(row) != channels:
            raise TagfillError(
                f"The text vector of '{name}' in {path} has {len(row)} numbers, but features of the backbone "
                f"{backbone} have {channels}; take a backbone in the space of the texts, such as "
                "vit_base_patch16_clip_224.openai_joint, or texts of its model."
            )
        if not (torch.isfinite(row).all() and row.norm() > 0):
            raise TagfillError(f"The text vector of '{name}' in {path} is zero or not finite; write the file again.")
    return F.normalize(torch.stack(rows), dim=1)


def check_vectors_file(path: str | Path | None) -> None:
    """Raise unless there is a file of text vectors."""
    if path is None:
        raise TagfillError(
            "init=text needs the text vectors of the classes; give the file that 'tagfill evidence text DATASET "
            "--vectors FILE' writes as head_options.vectors."
        )
    if not Path(path).is_file():
        raise TagfillError(f"There is no file {path} of text vectors; give head_options.vectors an existing one.")
