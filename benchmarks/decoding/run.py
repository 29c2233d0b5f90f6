"""Decoders of JPEG photos of 12 megapixels; writes benchmarks/results/decoding.json and docs/benchmarks/decoding.md.

Pillow, torchvision, simplejpeg and PyTurboJPEG decode the same photos, at full size and, where they can, at a quarter
of each side; Tagfill makes the view that a network reads. They take turns in a new order each round, in one thread, and
ratios are within a round. Libraries that are not installed are left out and named.

    python benchmarks/decoding/run.py                      about three minutes
    python benchmarks/decoding/run.py --images DIR         on the first JPEGs below a folder instead of rendered ones
    python benchmarks/decoding/run.py --turbojpeg FILE     the library that PyTurboJPEG loads, if it does not find one
    python benchmarks/decoding/run.py --quick              one round of two photos, printed and not written down
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from page import page
from PIL import Image, features

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "training"))

from bookkeeping import Record, say

from data import photos
from tagfill.images import EVAL, load_view

RECORD = Record("decoding", ("images",), libraries=("pillow", "torchvision"))
SIZE = (4032, 3024)
STEP = 4  # what Tagfill reduces such a photo by, for a view of 224 pixels

Decoder = Callable[[bytes], NDArray[np.uint8]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    parser.add_argument("--images", type=Path, help="a folder of JPEGs to decode")
    parser.add_argument("--turbojpeg", help="file of the library libturbojpeg")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="decoding-") as folder:
        results = run(Path(folder), options)
    if options.quick:
        print(json.dumps(results, indent=2))
        return
    RECORD.write(results, page(results))


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    results = RECORD.begin(f" --images {options.images.name}" if options.images else "")
    results["machine"]["libjpeg-turbo"] = features.version("libjpeg_turbo")
    say("photos")
    photos(folder, 2 if options.quick else 8, size=SIZE, source=options.images)
    names = sorted(f"images/{path.name}" for path in (folder / "images").iterdir())
    contents = {name: (folder / name).read_bytes() for name in names}
    available, results["missing"] = decoders(options.turbojpeg)
    work: dict[str, Callable[[str], Any]] = {
        name: partial(lambda decode, photo: decode(contents[photo]), decode) for name, decode in available.items()
    }
    work["Pillow again"] = work["Pillow"]
    work["Tagfill"] = lambda photo: load_view(folder, photo, EVAL, (224, 224), seed=0)
    results["photos"] = {
        "count": len(names),
        "rendered": options.images is None,
        "megapixels": statistics.mean(megapixels(content) for content in contents.values()),
        "megabytes": statistics.mean(map(len, contents.values())) / 1e6,
    }
    say("decoding")
    results["milliseconds"] = measure(work, names, rounds=1 if options.quick else 7)
    results["difference"] = {name: difference(available, name, contents[names[0]]) for name in available}
    return results


def decoders(library: str | None) -> tuple[dict[str, Decoder], list[str]]:
    """What is installed, and the names of what is not. Names that end with `reduced` decode a quarter of each side."""
    found: dict[str, Decoder] = {"Pillow": pillow, "Pillow, reduced": partial(pillow, step=STEP)}
    missing = []
    try:
        from torchvision.io import ImageReadMode, decode_jpeg

        def torchvision(content: bytes) -> NDArray[np.uint8]:
            pixels = decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8), mode=ImageReadMode.RGB)
            return pixels.permute(1, 2, 0).numpy()

        torchvision(_one_pixel())
        found["torchvision"] = torchvision
    except (ImportError, RuntimeError):  # some builds come without its image extension
        missing.append("the decoder of torchvision")
    try:
        import simplejpeg

        def reduced(content: bytes) -> NDArray[np.uint8]:
            height, width, *_ = simplejpeg.decode_jpeg_header(content)
            return simplejpeg.decode_jpeg(content, min_height=-(-height // STEP), min_width=-(-width // STEP))

        found |= {"simplejpeg": simplejpeg.decode_jpeg, "simplejpeg, reduced": reduced}
    except ImportError:
        missing.append("simplejpeg")
    try:
        from turbojpeg import TJPF_RGB, TurboJPEG

        turbo = TurboJPEG(library)
        found["PyTurboJPEG"] = partial(turbo.decode, pixel_format=TJPF_RGB)
        found["PyTurboJPEG, reduced"] = partial(turbo.decode, pixel_format=TJPF_RGB, scaling_factor=(1, STEP))
    except (ImportError, RuntimeError, OSError):  # it needs libturbojpeg, which its package does not contain
        missing.append("PyTurboJPEG")
    return found, missing


def _one_pixel() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (1, 1)).save(content, "JPEG")
    return content.getvalue()


def pillow(content: bytes, step: int = 1) -> NDArray[np.uint8]:
    image = Image.open(io.BytesIO(content))
    image.draft("RGB", (image.width // step, image.height // step))
    return np.asarray(image)


def measure(work: dict[str, Callable[[str], Any]], names: list[str], rounds: int) -> dict[str, list[float]]:
    """CPU milliseconds per photo of each contestant, one number per round, after a photo to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    order = random.Random(0)
    for decode in work.values():
        decode(names[0])
    for _ in range(rounds):
        for name in order.sample(list(work), len(work)):
            begin = time.process_time()
            for photo in names:
                work[name](photo)
            taken[name].append(round(1000 * (time.process_time() - begin) / len(names), 3))
    return taken


def difference(decoders: dict[str, Decoder], name: str, content: bytes) -> int | None:
    """The largest difference of a pixel's value from Pillow's at the same size; None if the sizes differ."""
    other = decoders["Pillow, reduced" if name.endswith("reduced") else "Pillow"](content).astype(np.int16)
    own = decoders[name](content)
    return int(np.abs(own - other).max()) if own.shape == other.shape else None


def megapixels(content: bytes) -> float:
    width, height = Image.open(io.BytesIO(content)).size
    return width * height / 1e6


if __name__ == "__main__":
    main()
