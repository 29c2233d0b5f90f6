"""A model whose scores can be computed by hand: it finds red, green and blue by the mean of each channel.

logit of a color = (mean of its channel − 128) / 16,   map = the same of each quarter of the image
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from tagfill.inference.onnx_predictor import Sidecar, SidecarHashes, SidecarPreprocessing
from tagfill.io import sha256, sha256_of_strings
from tagfill.probabilities import Calibration

CLASSES = ("red", "green", "blue")
SIDE = 32


def write_model(
    path: Path,
    *,
    maps: bool = True,
    thresholds: tuple[float, ...] | None = None,
    calibration: Calibration | None = None,
    classes: tuple[str, ...] = CLASSES,
    scale: float = 16,
) -> Path:
    """An ONNX file and its sidecar; with other `classes` or a `scale` of 0 it is a broken one."""
    constants = [
        numpy_helper.from_array(np.array(128, np.float32), "middle"),
        numpy_helper.from_array(np.array(scale, np.float32), "scale"),
        numpy_helper.from_array(np.array([2, 3], np.int64), "cells"),
    ]
    nodes = [
        helper.make_node("Cast", ["pixels"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["floats", "middle"], ["centered"]),
        helper.make_node("Div", ["centered", "scale"], ["scaled"]),
        helper.make_node(
            "AveragePool", ["scaled"], ["maps"], kernel_shape=[SIDE // 2, SIDE // 2], strides=[SIDE // 2, SIDE // 2]
        ),
        helper.make_node("ReduceMean", ["maps", "cells"], ["logits"], keepdims=0),
    ]
    shapes = {"logits": ["N", 3], "maps": ["N", 3, 2, 2]}
    outputs = ("logits", "maps") if maps else ("logits",)
    graph = helper.make_graph(
        nodes,
        "colors",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["N", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    Sidecar(
        backbone="none",
        head="cam",
        head_options={},
        classes=classes,
        classes_identity=sha256_of_strings(classes),
        thresholds=thresholds,
        calibration=calibration,
        preprocessing=SidecarPreprocessing(size=(SIDE, SIDE), mean=(128.0,) * 3, std=(16.0,) * 3),
        outputs=outputs,
        hashes=SidecarHashes(onnx=sha256(path), model="by hand"),
        parity={},
    ).write(path)
    return path


def write_image(path: Path, color: tuple[int, int, int], size: tuple[int, int] = (40, 30)) -> Path:
    """An image of one color."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)
    return path


def write_images(folder: Path, count: int) -> Path:
    """Images whose red channel grows from 0 by 8 per image, named by their number."""
    for number in range(count):
        write_image(folder / f"{number:03d}.png", (min(8 * number, 255), 0, 128))
    return folder


def probability(channel: float) -> float:
    """What the model says about a color whose channel has this value everywhere."""
    return float(1 / (1 + np.exp(-(channel - 128) / 16)))
