"""A classifier as a function of pixels alone, with plain tensors as outputs, which is what exporters trace.

A model as an ONNX file that gives the same logits without torch.

    pixels (N×3×H×W uint8) → logits (N×L float32), and maps (N×L×h×w float32) where they are asked for

for any N. The graph holds the scaling of pixels, the backbone, the head and its boost, as they are in evaluation.
Before the file is written, onnxruntime and torch look at the same images, random ones and real ones: where their
outputs differ by more than 10⁻⁴ (of the largest output, where that is above 1), nothing is written.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.images import load_batches
from tagfill.inference.images import Images, find_images
from tagfill.inference.onnx_predictor import Sidecar, open_session, sidecar_path
from tagfill.inference.predictors import ModelPath, model_path
from tagfill.io import atomic_write, sha256

if TYPE_CHECKING:
    from tagfill.inference.torch_predictor import TorchPredictor


TOLERANCE = 1e-4
_REAL = 8  # images that are looked at, of those that are given
_SIZES = (1, 2, 5)  # batches of random images, to see that any number will do


@dataclass(frozen=True)
class OnnxExport:
    """An exported model.

    Attributes:
        onnx: the file.
        sidecar: what goes with it.
        outputs: `logits`, and `maps` where they were asked for.
        differences: the largest difference to torch on `random` images, and on `real` ones if there were any.
        real_images: how many of those.
    """

    onnx: Path
    sidecar: Path
    outputs: tuple[str, ...]
    differences: dict[str, float]
    real_images: int


def export(
    run: ModelPath,
    onnx: str | Path,
    *,
    maps: bool = False,
    images: Images | Iterable[Images] | None = None,
    split: str | None = None,
) -> OnnxExport:
    """Write a model as an ONNX file, with a JSON sidecar beside it.

    Args:
        run: a run or its folder, or a model folder.
        onnx: the file, which ends in .onnx.
        maps: give class maps too.
        images: real images to compare with torch on; the first eight are looked at.
        split: of a dataset among those.

    Raises:
        TagfillError: if the head has no class maps, or onnxruntime does not give what torch gives.

    Example:
        `export("runs/photos", "photos.onnx", maps=True, images="photos")`
    """
    path, folder = Path(onnx), model_path(run)
    if path.suffix != ".onnx" or folder.suffix == ".onnx":
        raise TagfillError(f"A run or model folder is exported into an .onnx file; given were {folder} and {path}.")
    from tagfill.inference.torch_predictor import TorchPredictor

    predictor = TorchPredictor.open(folder)
    if maps:
        predictor.check_maps()
    outputs = ("logits", "maps") if maps else ("logits",)
    content = _graph(predictor, outputs)
    real = _first(images, split, predictor.size) if images is not None else None
    differences = _differences(predictor, content, outputs, real)
    backbone = predictor.model.backbone
    assert backbone is not None
    with atomic_write(path) as file:
        file.write(content)
    sidecar = Sidecar(
        classes=predictor.classes,
        thresholds=predictor.thresholds,
        size=predictor.size,
        mean=backbone.preprocessing.mean,
        std=backbone.preprocessing.std,
        outputs=outputs,
        onnx=sha256(path),
        model=predictor.identity,
        described={
            "backbone": backbone.name,
            "head": predictor.model.head_name,
            "head_options": predictor.model.head.options,
        },
        parity={
            "largest_difference": differences,
            "real_images": 0 if real is None else len(real),
            "versions": {name: version(name) for name in ("tagfill", "torch", "onnxruntime")},
        },
    )
    sidecar.write(path)
    return OnnxExport(path, sidecar_path(path), outputs, differences, 0 if real is None else len(real))


def _graph(predictor: TorchPredictor, outputs: tuple[str, ...]) -> bytes:
    """The model as the bytes of an ONNX file, without notes of where on this machine its code lies."""
    import torch

    try:
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ModuleNotFoundError:
        raise TagfillError(
            "Exporting needs onnx, onnxscript and onnxruntime; install them with: pip install 'tagfill[export]'."
        ) from None

    class PlainOutputs(torch.nn.Module):
        """The classifier with a tuple of tensors as its output, which is what exporters trace."""

        def __init__(self) -> None:
            super().__init__()
            self.model = predictor.model

        def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, ...]:
            prediction = self.model(pixels, maps="maps" in outputs)
            assert isinstance(prediction.logits, torch.Tensor)
            return (prediction.logits,) if prediction.maps is None else (prediction.logits, prediction.maps)

    module = PlainOutputs().eval()
    pixels = torch.zeros(2, 3, *predictor.size, dtype=torch.uint8)  # a batch of one would be taken for a constant
    dynamic = {"pixels": {0: torch.export.Dim("batch")}}
    names: dict[str, Any] = {"input_names": ["pixels"], "output_names": list(outputs)}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter about itself
            graph = torch.export.export(module, (pixels,), dynamic_shapes=dynamic)
            program = torch.onnx.export(graph, dynamo=True, external_data=False, verbose=False, **names)
    except Exception as error:  # it has a class of errors for each way in which a model cannot be traced
        backbone = predictor.model.backbone
        raise TagfillError(
            f"torch cannot export {backbone.name if backbone else 'the model'} with the {predictor.model.head_name} "
            f"head ({str(error).splitlines()[0] if str(error) else type(error).__name__})."
        ) from error
    assert program is not None
    model = program.model_proto
    for part in (model, model.graph, *model.functions):
        _forget(part)
        for node in getattr(part, "node", ()):
            _forget(node)
    symbol = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        _forget(value)
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == symbol:
                dim.dim_param = "batch"
    serialised: bytes = model.SerializeToString(deterministic=True)
    return serialised


def _forget(part: Any) -> None:
    part.doc_string = ""
    if hasattr(part, "metadata_props"):
        del part.metadata_props[:]


def _first(images: Images | Iterable[Images], split: str | None, size: tuple[int, int]) -> NDArray[np.uint8] | None:
    """The pixels of the first real images; None where none can be decoded."""
    found = find_images(images, split=split)
    (batch,) = load_batches([range(min(_REAL, len(found)))], found.locate, size)
    return batch.inputs if len(batch.index) else None


def _differences(
    predictor: TorchPredictor, content: bytes, outputs: tuple[str, ...], real: NDArray[np.uint8] | None
) -> dict[str, float]:
    """How far onnxruntime is from torch, on random and on real images."""
    session = open_session(content)
    random = np.random.default_rng(0)
    batches = {"random": [random.integers(0, 256, (n, *predictor.size, 3), dtype=np.uint8) for n in _SIZES]}
    if real is not None:
        batches["real"] = [real]
    found = {}
    for kind, arrays in batches.items():
        found[kind] = max(_difference(predictor, session, outputs, pixels) for pixels in arrays)
        if not found[kind] <= TOLERANCE:
            raise TagfillError(
                f"onnxruntime does not give what torch gives: outputs for {kind} images differ by {found[kind]:.2g}, "
                f"more than {TOLERANCE:g}; nothing was written."
            )
    return found


def _difference(predictor: TorchPredictor, session: Any, outputs: tuple[str, ...], pixels: NDArray[np.uint8]) -> float:
    theirs = session.run(list(outputs), {"pixels": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))})
    said = predictor(pixels, maps="maps" in outputs)
    ours = [said.logits] if said.maps is None else [said.logits, said.maps]
    return max(
        float(np.abs(a - b).max() / max(1.0, np.abs(a).max())) if a.shape == b.shape else float("inf")
        for a, b in zip(ours, theirs, strict=True)
    )
