"""A model that can be followed by hand: it tells red, green and blue by the mean of each channel, and where they are.

logit of a colour = (mean of its channel − 128) / 16,   map = the same of each quarter of the image
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from tagfill.inference.onnx_predictor import Sidecar
from tagfill.io import sha256

CLASSES = ("red", "green", "blue")
SIDE = 32


def write_model(path: Path, *, maps: bool = True, thresholds: tuple[float, ...] | None = None) -> Path:
    """An ONNX file and its sidecar."""
    constants = [
        numpy_helper.from_array(np.array(128, np.float32), "middle"),
        numpy_helper.from_array(np.array(16, np.float32), "scale"),
        numpy_helper.from_array(np.array([2, 3], np.int64), "cells"),
    ]
    nodes = [
        helper.make_node("Cast", ["pixels"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["floats", "middle"], ["centred"]),
        helper.make_node("Div", ["centred", "scale"], ["scaled"]),
        helper.make_node(
            "AveragePool", ["scaled"], ["maps"], kernel_shape=[SIDE // 2, SIDE // 2], strides=[SIDE // 2, SIDE // 2]
        ),
        helper.make_node("ReduceMean", ["maps", "cells"], ["logits"], keepdims=0),
    ]
    shapes = {"logits": ["N", 3], "maps": ["N", 3, 2, 2]}
    outputs = ("logits", "maps") if maps else ("logits",)
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["N", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    described = {"backbone": "none", "head": "cam", "head_options": {}}
    Sidecar(
        CLASSES, thresholds, (SIDE, SIDE), (128.0,) * 3, (16.0,) * 3, outputs, sha256(path), "by hand", described, {}
    ).write(path)
    return path


def write_image(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (40, 30)) -> Path:
    """An image of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def write_images(folder: Path, count: int) -> Path:
    """Images whose red channel grows from 0 by 8 an image, named by their number."""
    for number in range(count):
        write_image(folder / f"{number:03d}.png", (min(8 * number, 255), 0, 128))
    return folder


def probability(channel: float) -> float:
    """What the model says about a colour whose channel has this value everywhere."""
    return float(1 / (1 + np.exp(-(channel - 128) / 16)))
