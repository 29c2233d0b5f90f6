"""Prediction from an ONNX file with onnxruntime; torch is neither needed nor imported.

The sidecar `model.onnx.json` of `model.onnx` has everything that the graph does not contain: classes, thresholds and
preprocessing as in a model folder's `model.json`, the names of the outputs, hashes of the ONNX file and of the exported
model, and the differences to torch that the export measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tagfill.errors import TagfillError, first_problem
from tagfill.inference.predictors import Outputs, require_finite
from tagfill.io import sha256, sha256_of_strings, write_json
from tagfill.probabilities import Calibration

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "mps": "CoreMLExecutionProvider"}
_MAX_INPUT = 64 * 10**6  # pixels
_REMEDY = "export the model again or take another copy of both files"


class OnnxPredictor:
    """An onnxruntime session, with the classes, thresholds and size from its sidecar."""

    def __init__(self, session: Any, sidecar: Sidecar, path: Path) -> None:
        self._session, self._path = session, path
        self._outputs = sidecar.outputs
        self.classes, self.thresholds, self.size = sidecar.classes, sidecar.thresholds, sidecar.preprocessing.size
        self.calibration, self.identity = sidecar.calibration, sidecar.identity

    @classmethod
    def open(cls, path: Path, *, device: str = "auto", threads: int | None = None) -> OnnxPredictor:
        """Open an ONNX file and its sidecar."""
        sidecar = Sidecar.read(path)
        predictor = cls(open_onnx_session(path, device=device, threads=threads), sidecar, path)
        predictor._try_out()
        return predictor

    def _try_out(self) -> None:
        """Raise if the graph cannot score a gray image: wrong outputs are found before any work begins."""
        height, width = self.size
        if not 0 < height * width <= _MAX_INPUT:
            raise TagfillError(f"{sidecar_path(self._path)} names inputs of {height} × {width} pixels; {_REMEDY}.")
        gray = np.full((1, height, width, 3), 128, np.uint8)
        require_finite(self(gray, maps="maps" in self._outputs).logits)

    def check_maps(self) -> None:
        """Raise if the file has no class maps."""
        if "maps" not in self._outputs:
            raise TagfillError(f"{self._path} was exported without class maps; export the model again with --maps.")

    def __call__(self, pixels: NDArray[np.uint8], *, maps: bool = False) -> Outputs:
        """Score images: B×H×W×3 pixels."""
        if not len(pixels):
            return Outputs.empty(len(self.classes))
        names = ["logits", "maps"] if maps else ["logits"]
        try:
            arrays = self._session.run(names, {"pixels": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))})
        except Exception as error:  # onnxruntime has many error classes
            raise TagfillError(f"{self._path} cannot score images ({str(error).splitlines()[0]}); {_REMEDY}.") from None
        for name, array, dimensions in zip(names, arrays, (2, 4), strict=False):
            expected = (len(pixels), len(self.classes))
            if array.ndim != dimensions or array.shape[:2] != expected or array.dtype != np.float32 or not array.size:
                raise TagfillError(
                    f"The output '{name}' of {self._path} has the shape {array.shape} and the type {array.dtype} for "
                    f"{len(pixels)} images and {len(self.classes)} classes; {_REMEDY}."
                )
        return Outputs(arrays[0], arrays[1] if maps else None)


def open_onnx_session(model: Path | bytes, *, device: str = "auto", threads: int | None = None) -> Any:
    """An onnxruntime session for a file or its bytes.

    Args:
        model: the file, or its content.
        device: `cpu`, `cuda`, `mps` or `auto`.
        threads: of the network; by default one per core.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise TagfillError("ONNX files need onnxruntime; install it with: pip install 'tagfill[export]'.") from None
    available = onnxruntime.get_available_providers()
    names = [name for name in _PROVIDERS if _PROVIDERS[name] in available]
    if device not in (*names, "auto"):
        raise TagfillError(f"onnxruntime has no device '{device}' here; give {', '.join(names)} or auto.")
    chosen = next(name for name in ("cuda", "mps", "cpu") if name in names) if device == "auto" else device
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, providers=[_PROVIDERS[chosen]]
        )
    except Exception as error:  # onnxruntime has many error classes
        raise TagfillError(f"onnxruntime cannot open the model ({str(error).splitlines()[0]}).") from None


class SidecarPreprocessing(BaseModel):
    """How pixels are prepared.

    Attributes:
        input: shape and type of the graph's input.
        size: height and width of the input.
        view: how an image becomes pixels.
        mean: of each channel.
        std: of each channel.
        in_graph: the scaling that the graph does itself.
    """

    model_config = ConfigDict(frozen=True)

    input: str = "pixels: N×3×height×width uint8, RGB"
    size: tuple[int, int]
    view: str = "whole image, upright, transparency on white, squashed to size by Pillow's bicubic filter"
    mean: tuple[float, ...]
    std: tuple[float, ...]
    in_graph: str = "(pixels - mean) / std"


class SidecarHashes(BaseModel):
    """SHA-256 of the ONNX file, and identity of the model folder that was exported."""

    model_config = ConfigDict(frozen=True)

    onnx: str
    model: str


class Sidecar(BaseModel):
    """The content of `model.onnx.json`.

    Attributes:
        format: version of this file's format.
        backbone: timm's name.
        head: a name from `HEADS`.
        head_options: all options of the head.
        classes: names, in the order of the logits.
        classes_identity: hash of the names, to detect edited ones.
        thresholds: of each class, the probability from which it counts as present; None if none were chosen.
        preprocessing: of pixels.
        outputs: `logits`, `probabilities` (not in files of version 0.1), and `maps` if they were exported.
        hashes: of the ONNX file and the model.
        parity: largest differences to torch that the export measured, and the versions it used.
        calibration: turns logits into probabilities; None for the plain sigmoid, as in files of version 0.1.
    """

    model_config = ConfigDict(frozen=True)

    format: Literal["tagfill-onnx-1"] = "tagfill-onnx-1"
    backbone: str
    head: str
    head_options: dict[str, Any]
    classes: tuple[str, ...]
    classes_identity: str
    thresholds: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None
    preprocessing: SidecarPreprocessing
    outputs: tuple[str, ...]
    hashes: SidecarHashes
    parity: dict[str, Any]
    calibration: Calibration | None = None

    @model_validator(mode="after")
    def _check_classes(self) -> Sidecar:
        if self.classes_identity != sha256_of_strings(self.classes):
            raise ValueError("its classes were edited after the export")
        if self.thresholds is not None and len(self.thresholds) != len(self.classes):
            raise ValueError("it does not have one threshold per class")
        if self.calibration is not None and self.calibration.width != len(self.classes):
            raise ValueError(f"its calibration has {self.calibration.width} classes instead of {len(self.classes)}")
        return self

    @property
    def identity(self) -> str:
        """A hash of everything that predictions depend on."""
        thresholds = [] if self.thresholds is None else [repr(value) for value in self.thresholds]
        calibration = [] if self.calibration is None else [self.calibration.model_dump_json()]
        return sha256_of_strings(
            [self.hashes.onnx, repr(self.preprocessing.size), *self.classes, *thresholds, *calibration]
        )

    def write(self, path: Path) -> None:
        """Write the sidecar of the ONNX file `path`."""
        write_json(sidecar_path(path), self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path) -> Sidecar:
        """Read the sidecar of the ONNX file `path`, and check that it belongs to this file."""
        place = sidecar_path(path)
        try:
            sidecar = cls.model_validate_json(place.read_bytes())
        except FileNotFoundError:
            raise TagfillError(
                f"{path} has no sidecar {place.name} beside it; copy both, or export the model again."
            ) from None
        except ValidationError as error:
            raise TagfillError(f"{place} is damaged: {first_problem(error)}; {_REMEDY}.") from None
        if sidecar.hashes.onnx != sha256(path):
            raise TagfillError(f"{place.name} was written for another file than {path}: its hash differs; {_REMEDY}.")
        return sidecar


def sidecar_path(path: Path) -> Path:
    """The sidecar of an ONNX file.

    >>> sidecar_path(Path("models/photos.onnx")).as_posix()
    'models/photos.onnx.json'
    """
    return path.with_name(f"{path.name}.json")
