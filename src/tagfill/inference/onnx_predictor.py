"""An ONNX file, run by onnxruntime; torch is not needed and not imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.inference.predictor import Outputs
from tagfill.inference.sidecar import Sidecar

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
        return cls(session_of(path, device=device, threads=threads), sidecar, path)

    def check_maps(self) -> None:
        """Refuse class maps where the file gives none."""
        if "maps" not in self._outputs:
            raise TagfillError(f"{self._path} was exported without class maps; export the model again with --maps.")

    def __call__(self, pixels: NDArray[np.uint8], *, maps: bool = False) -> Outputs:
        """Look at images, B×H×W×3."""
        wanted = ["logits", "maps"] if maps else ["logits"]
        found = self._session.run(wanted, {"pixels": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))})
        return Outputs(found[0], found[1] if maps else None)


def session_of(model: Path | bytes, *, device: str = "cpu", threads: int | None = None) -> Any:
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
