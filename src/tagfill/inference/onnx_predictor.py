"""The sidecar of an ONNX file, `model.onnx.json`: all that the graph does not say.

It has what a model folder's `model.json` has (classes, thresholds, preprocessing), the names of the outputs, hashes of
the ONNX file and of the model that it was made from, and how far the two were apart when it was exported.


An ONNX file, run by onnxruntime; torch is not needed and not imported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.inference.predictors import Outputs
from tagfill.io import sha256, sha256_of_strings, write_json

FORMAT = "tagfill-onnx-1"
_AFRESH = "export the model again or take another copy of both files"


@dataclass(frozen=True)
class Sidecar:
    """What goes with an ONNX file.

    Attributes:
        classes: names, in the order of the logits.
        thresholds: of each class, the probability from which it is said to be present, if they were chosen.
        size: height and width of the input.
        mean: of each channel, inside the graph; here for other programs to know.
        std: likewise.
        outputs: `logits`, and `maps` where they were exported.
        onnx: SHA-256 of the ONNX file.
        model: identity of the model folder that was exported.
        described: backbone, head and its options.
        parity: largest differences to torch that the export found, and versions that it was made with.
    """

    classes: tuple[str, ...]
    thresholds: tuple[float, ...] | None
    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    outputs: tuple[str, ...]
    onnx: str
    model: str
    described: dict[str, Any]
    parity: dict[str, Any]

    @property
    def identity(self) -> str:
        """A hash of everything that predictions depend on."""
        thresholds = [] if self.thresholds is None else [repr(value) for value in self.thresholds]
        return sha256_of_strings([self.onnx, repr(self.size), *self.classes, *thresholds])

    def write(self, path: Path) -> None:
        """Write the sidecar of the ONNX file `path`."""
        write_json(
            sidecar_path(path),
            {
                "format": FORMAT,
                **self.described,
                "classes": list(self.classes),
                "classes_identity": sha256_of_strings(self.classes),
                "thresholds": None if self.thresholds is None else list(self.thresholds),
                "preprocessing": {
                    "input": "pixels: N×3×height×width uint8, RGB",
                    "size": list(self.size),
                    "view": "whole image, upright, transparency on white, squashed to size by Pillow's bicubic filter",
                    "mean": list(self.mean),
                    "std": list(self.std),
                    "in_graph": "(pixels - mean) / std",
                },
                "outputs": list(self.outputs),
                "hashes": {"onnx": self.onnx, "model": self.model},
                "parity": self.parity,
            },
        )

    @classmethod
    def read(cls, path: Path) -> Sidecar:
        """Read the sidecar of the ONNX file `path`, and check that the two belong together."""
        where = sidecar_path(path)
        if not where.is_file():
            raise TagfillError(f"{path} has no sidecar {where.name} beside it; copy both, or export the model again.")
        try:
            content = json.loads(where.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise TagfillError(f"{where} is damaged: it is not valid JSON; {_AFRESH}.") from None
        try:
            found = _parsed(content)
        except (KeyError, TypeError, ValueError) as error:
            raise TagfillError(f"{where} is damaged: {error}; {_AFRESH}.") from None
        if found.onnx != sha256(path):
            raise TagfillError(
                f"{path} is not the file that {where.name} was written for: its hash differs; {_AFRESH}."
            )
        return found


def sidecar_path(path: Path) -> Path:
    """Where the sidecar of an ONNX file lies.

    >>> sidecar_path(Path("models/photos.onnx")).as_posix()
    'models/photos.onnx.json'
    """
    return path.with_name(f"{path.name}.json")


def _parsed(content: Any) -> Sidecar:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    classes, thresholds = tuple(content["classes"]), content["thresholds"]
    if content["classes_identity"] != sha256_of_strings(classes):
        raise ValueError("its classes are not those that it was written with")
    if thresholds is not None and (
        len(thresholds) != len(classes) or not all(0 <= float(value) <= 1 for value in thresholds)
    ):
        raise ValueError("its thresholds are not one probability a class")
    preprocessing, hashes = content["preprocessing"], content["hashes"]
    height, width = (int(side) for side in preprocessing["size"])
    return Sidecar(
        classes,
        None if thresholds is None else tuple(map(float, thresholds)),
        (height, width),
        tuple(map(float, preprocessing["mean"])),
        tuple(map(float, preprocessing["std"])),
        tuple(map(str, content["outputs"])),
        str(hashes["onnx"]),
        str(hashes["model"]),
        {name: content[name] for name in ("backbone", "head", "head_options")},
        dict(content["parity"]),
    )


_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "mps": "CoreMLExecutionProvider"}


class OnnxPredictor:
    """A session of onnxruntime, with what its sidecar says."""

    def __init__(self, session: Any, sidecar: Sidecar, path: Path) -> None:
        self._session, self._path = session, path
        self._outputs = sidecar.outputs
        self.classes, self.thresholds, self.size = sidecar.classes, sidecar.thresholds, sidecar.size
        self.identity = sidecar.identity

    @classmethod
    def open(cls, path: Path, *, device: str = "cpu", threads: int | None = None) -> OnnxPredictor:
        """Open an ONNX file and its sidecar."""
        sidecar = Sidecar.read(path)
        return cls(open_session(path, device=device, threads=threads), sidecar, path)

    def check_maps(self) -> None:
        """Refuse class maps where the file gives none."""
        if "maps" not in self._outputs:
            raise TagfillError(f"{self._path} was exported without class maps; export the model again with --maps.")

    def __call__(self, pixels: NDArray[np.uint8], *, maps: bool = False) -> Outputs:
        """Score images: B×H×W×3 pixels."""
        if not len(pixels):
            return Outputs.empty(len(self.classes))
        wanted = ["logits", "maps"] if maps else ["logits"]
        found = self._session.run(wanted, {"pixels": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))})
        return Outputs(found[0], found[1] if maps else None)


def open_session(model: Path | bytes, *, device: str = "cpu", threads: int | None = None) -> Any:
    """A session of onnxruntime for a file or its bytes."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise TagfillError("ONNX files need onnxruntime; install it with: pip install 'tagfill[export]'.") from None
    available = onnxruntime.get_available_providers()
    names = [name for name in _PROVIDERS if _PROVIDERS[name] in available]
    if device not in (*names, "auto"):
        raise TagfillError(f"onnxruntime has no device '{device}' here; give {', '.join(names)} or auto.")
    wanted = "cuda" if device == "auto" and "cuda" in names else "cpu" if device == "auto" else device
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, providers=[_PROVIDERS[wanted]]
        )
    except Exception as error:  # onnxruntime has a class of errors for each way in which a file is wrong
        raise TagfillError(f"onnxruntime cannot open the model ({str(error).splitlines()[0]}).") from None
