"""Convert a published PyTorch checkpoint or backbone.

Example: `tagfill convert q2l q2l-resnet101.pth --classes coco --out q2l-coco`

Example: `tagfill convert tfjs-resnet package/ResNet50 --out resnet50.safetensors`
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError, unknown_name
from tagfill.io import require_unused
from tagfill.options import parse_options

if TYPE_CHECKING:
    from torch import Tensor

_BACKBONE, _TFJS_RESNET = "backbone", "tfjs-resnet"


def convert(
    source: Annotated[
        str, typer.Argument(help="`q2l`, `mlspl`, `tscam`, `torchvision`; `backbone`, `tfjs-resnet` for weights alone.")
    ],
    file: Annotated[Path, typer.Argument(help="The PyTorch file or TensorFlow.js folder; nothing in it is executed.")],
    out: Annotated[Path, typer.Option(help="Model folder to create; for weights alone, a safetensors file.")],
    classes: Annotated[
        Path | None, typer.Option(help="Text file with one class per line, or a dataset folder; not for weights alone.")
    ] = None,
    given: flags.Options = None,
    force: flags.Force = False,
) -> None:
    """Convert."""
    from tagfill.images import input_size
    from tagfill.models.convert import CONVERTERS
    from tagfill.models.published_weights import read_published_weights
    from tagfill.models.tfjs_resnet import RESNET_V1, convert_tfjs_resnet

    if source == _BACKBONE:
        _convert_weights(source, lambda: read_published_weights(file).weights, "NAME", out, given or [], force)
        return
    if source == _TFJS_RESNET:
        _convert_weights(source, lambda: convert_tfjs_resnet(file), RESNET_V1, out, given or [], force)
        return
    if source not in CONVERTERS:
        raise unknown_name("source of models", source, [*CONVERTERS, _BACKBONE, _TFJS_RESNET])
    function, what = CONVERTERS[source], f"source '{source}'"
    values = parse_options(function, given or [], what, readers={"image_size": input_size})
    if classes is None:
        raise TagfillError("The file has no class names; give a text file or a dataset folder to --classes.")
    names = _class_names(classes)
    require_unused(out, force)
    model = function(read_published_weights(file), names, **values)
    model.save(out)
    assert model.backbone is not None
    height, width = model.backbone.preprocessing.size
    what = f"{model.backbone.name} with the head '{model.head_name}'"
    terminal.show(f"{out}: {what}, {len(names)} classes, images of {height}×{width} pixels")
    terminal.next_step(f"tagfill evaluate {out} DATASET", f"tagfill predict {out} PHOTOS --out predictions.csv")


def _convert_weights(
    source: str, read: Callable[[], dict[str, Tensor]], backbone: str, out: Path, given: list[str], force: bool
) -> None:
    from safetensors.torch import save

    from tagfill.io import atomic_write

    if given:
        raise TagfillError(f"The source '{source}' has no options; leave out --option {given[0]}.")
    if out.suffix != ".safetensors":
        raise TagfillError(f"--out {out} must end in .safetensors.")
    if out.exists() and not force:
        raise TagfillError(f"{out} exists; choose another --out, or give --force to replace it.")
    weights = read()
    with atomic_write(out) as target:
        target.write(save({name: value.clone().contiguous() for name, value in weights.items()}))
    terminal.show(f"{out}: {len(weights)} tensors")
    terminal.next_step(f"tagfill train DATASET --backbone {backbone} --pretrained {out}")


def _class_names(path: Path) -> list[str]:
    if path.is_dir():
        from tagfill.dataset import Dataset

        return list(Dataset.open(path).classes)
    if not path.is_file():
        raise TagfillError(f"There is no file or dataset folder {path}; give one to --classes.")
    names = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TagfillError(f"{path} has the class '{twice[0]}' twice; remove one of them.")
    return names
