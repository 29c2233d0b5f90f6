"""Export a model to an ONNX file that returns the same logits without torch.

    pixels (N×3×H×W uint8) → logits, probabilities (N×L float32), and optionally maps (N×L×h×w float32), for any N

The graph contains the scaling of pixels, the backbone, the head and its boost, in evaluation mode, and the calibration
of the model. Its probabilities are for other programs: Tagfill computes them from the logits, in double precision, as
for a model folder, because labels at their threshold depend on the last bit. Before the file is
written, onnxruntime and torch score the same random and real images: if their outputs differ by more than 10⁻⁴
(relative to the largest output, if that is above 1), nothing is written.
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
from tagfill.inference.onnx_predictor import (
    Sidecar,
    SidecarHashes,
    SidecarPreprocessing,
    open_onnx_session,
    sidecar_path,
)
from tagfill.inference.predictors import ModelPath, model_path
from tagfill.io import atomic_write, sha256, sha256_of_strings
from tagfill.probabilities import Calibration, probabilities

if TYPE_CHECKING:
    from tagfill.inference.torch_predictor import TorchPredictor

TOLERANCE = 1e-4
_REAL_IMAGES = 8  # of the images that are given
_RANDOM_BATCHES = (1, 2, 5)  # images per random batch, to check that any number works


@dataclass(frozen=True)
class OnnxExport:
    """An exported model.

    Attributes:
        onnx: the file.
        sidecar: the JSON file beside it.
        outputs: `logits`, `probabilities`, and `maps` if they were exported.
        differences: the largest difference to torch on `random` images, and on `real` ones if there were any.
        real_images: number of real images compared.
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
    """Export a model to an ONNX file, with a JSON sidecar beside it.

    Args:
        run: a run or its folder, or a model folder.
        onnx: the file, which ends in .onnx.
        maps: export class maps too.
        images: real images to compare with torch on; the first eight are used.
        split: of a dataset among those.

    Raises:
        TagfillError: if the head has no class maps, or onnxruntime and torch disagree.

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
    outputs = ("logits", "probabilities", "maps") if maps else ("logits", "probabilities")
    content = _graph(predictor, outputs)
    real = _first_images(images, split, predictor.size) if images is not None else None
    differences = _compare(predictor, content, outputs, real)
    model, backbone = predictor.model, predictor.model.backbone
    assert backbone is not None
    with atomic_write(path) as file:
        file.write(content)
    real_images = 0 if real is None else len(real)
    Sidecar(
        backbone=backbone.name,
        head=model.head_name,
        head_options=model.head.options,
        classes=predictor.classes,
        classes_identity=sha256_of_strings(predictor.classes),
        thresholds=predictor.thresholds,
        calibration=predictor.calibration,
        preprocessing=SidecarPreprocessing(
            size=predictor.size, mean=backbone.preprocessing.mean, std=backbone.preprocessing.std
        ),
        outputs=outputs,
        hashes=SidecarHashes(onnx=sha256(path), model=predictor.identity),
        parity={
            "largest_difference": differences,
            "real_images": real_images,
            "versions": {name: version(name) for name in ("tagfill", "torch", "onnxruntime")},
        },
    ).write(path)
    return OnnxExport(path, sidecar_path(path), outputs, differences, real_images)


def _graph(predictor: TorchPredictor, outputs: tuple[str, ...]) -> bytes:
    """The model as the bytes of an ONNX file, without paths of this machine's code."""
    import torch

    try:
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ModuleNotFoundError:
        raise TagfillError(
            "Exporting needs onnx, onnxscript and onnxruntime; install them with: pip install 'tagfill[export]'."
        ) from None

    class PlainOutputs(torch.nn.Module):
        """The classifier with a tuple of tensors as its output, which is what the exporter traces."""

        def __init__(self) -> None:
            super().__init__()
            self.model = predictor.model

        def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, ...]:
            prediction = self.model(pixels, maps="maps" in outputs)
            assert isinstance(prediction.logits, torch.Tensor)
            calibration = predictor.calibration or Calibration.identity(len(predictor.classes))
            shares = calibration.apply(prediction.logits, sigmoid=torch.sigmoid, constant=torch.tensor)
            found = (prediction.logits, shares)
            return found if prediction.maps is None else (*found, prediction.maps)

    pixels = torch.zeros(2, 3, *predictor.size, dtype=torch.uint8)  # a batch of one would be taken for a constant
    dynamic = {"pixels": {0: torch.export.Dim("batch")}}
    names: dict[str, Any] = {"input_names": ["pixels"], "output_names": list(outputs)}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter warns about itself
            graph = torch.export.export(PlainOutputs().eval(), (pixels,), dynamic_shapes=dynamic)
            program = torch.onnx.export(graph, dynamo=True, external_data=False, verbose=False, **names)
    except Exception as error:  # the exporter has many error classes
        backbone = predictor.model.backbone
        raise TagfillError(
            f"torch cannot export {backbone.name if backbone else 'the model'} with the {predictor.model.head_name} "
            f"head ({str(error).splitlines()[0] if str(error) else type(error).__name__})."
        ) from error
    assert program is not None
    model = program.model_proto
    for part in (model, model.graph, *model.functions):
        _remove_notes(part)
        for node in getattr(part, "node", ()):
            _remove_notes(node)
    symbol = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        _remove_notes(value)
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == symbol:
                dim.dim_param = "batch"
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _remove_notes(part: Any) -> None:
    part.doc_string = ""
    if hasattr(part, "metadata_props"):
        del part.metadata_props[:]


def _first_images(
    images: Images | Iterable[Images], split: str | None, size: tuple[int, int]
) -> NDArray[np.uint8] | None:
    """The pixels of the first real images; None if none can be decoded."""
    found = find_images(images, split=split)
    (batch,) = load_batches([range(min(_REAL_IMAGES, len(found)))], found.locate, size)
    return batch.inputs if len(batch.index) else None


def _compare(
    predictor: TorchPredictor, content: bytes, outputs: tuple[str, ...], real: NDArray[np.uint8] | None
) -> dict[str, float]:
    """The largest difference between onnxruntime and torch, on random and on real images; raise if it is too large."""
    session = open_onnx_session(content)
    rng = np.random.default_rng(0)
    batches = {"random": [rng.integers(0, 256, (n, *predictor.size, 3), dtype=np.uint8) for n in _RANDOM_BATCHES]}
    if real is not None:
        batches["real"] = [real]
    differences = {}
    for kind, arrays in batches.items():
        differences[kind] = max(_difference(predictor, session, outputs, pixels) for pixels in arrays)
        if not differences[kind] <= TOLERANCE:
            raise TagfillError(
                f"onnxruntime and torch disagree: outputs for {kind} images differ by {differences[kind]:.2g}, more "
                f"than {TOLERANCE:g}; nothing was written."
            )
    return differences


def _difference(predictor: TorchPredictor, session: Any, outputs: tuple[str, ...], pixels: NDArray[np.uint8]) -> float:
    theirs = session.run(list(outputs), {"pixels": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))})
    scored = predictor(pixels, maps="maps" in outputs)
    ours = [scored.logits, probabilities(scored.logits, predictor.calibration)]
    ours += [] if scored.maps is None else [scored.maps]
    return max(
        float(np.abs(a - b).max() / max(1.0, np.abs(a).max())) if a.shape == b.shape else float("inf")
        for a, b in zip(ours, theirs, strict=True)
    )
