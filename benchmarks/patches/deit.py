"""A small transformer end to end from random weights: the class token, TS-CAM with tags, TS-CAM with points.

Everything goes through the commands that a user types: `tagfill train` on images, `tagfill evaluate --localize` with
the class maps S (`--maps minmax`) and with the class token's attention, A·S (`--maps coupled`).

    python benchmarks/patches/deit.py                                four minutes on two cores, goes on after a stop
    python benchmarks/patches/deit.py --train-images 40 --epochs 1   a look, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from record import record
from trained import boxed, say

BACKBONE, PIXELS, PERCENT = "deit_tiny_patch16_224", 64, 50
IMAGES, EPOCHS = 500, 12
SETTINGS = ["--set", f"image_size={PIXELS}", "--set", "train=all", "--set", "crop_scale=null", "--batch-size", "32",
            "--set", "optimizer.name=adamw", "--lr", "5e-4", "--set", "schedule.name=cosine",
            "--set", "schedule.warmup_epochs=1", "--seed", "0"]  # fmt: skip
ENTRIES = {
    "linear, I": ("I", ["--method", "ignore", "--head", "linear", "--set", "head_options.pool=token"]),
    "tscam, I": ("I", ["--method", "patchml", "--head", "tscam", "--set", "options.patchml.w_patch=0"]),
    "tscam, SP": ("SP", ["--method", "patchml", "--head", "tscam", "--set", "options.patchml.w_patch=5"]),
}
UNTRAINED = "tscam, untrained"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train-images", type=int, default=IMAGES)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/patches-deit"), help="where data and runs are kept")
    options = parser.parse_args()
    sizes = {"train": options.train_images, "val": 100, "test": 200}
    prepare(options.out, sizes)
    with ThreadPoolExecutor(options.jobs) as pool:  # each waits for a process of its own
        scores = {name: pool.submit(scored, name, options) for name in [*ENTRIES, UNTRAINED]}
    found: dict[str, Any] = {"sizes": sizes, "pixels": PIXELS, "percent": PERCENT, "epochs": options.epochs}
    found |= {"scores": {name: waiting.result() for name, waiting in scores.items()}}
    if (options.train_images, options.epochs) != (IMAGES, EPOCHS):
        print(json.dumps(found, indent=2))
        return
    record("deit", found)


def prepare(out: Path, sizes: dict[str, int]) -> None:
    """Scenes as small as the network sees them, with masks and with boxes as truth, and what the budget buys."""
    import tagfill
    from tagfill.models import create

    full = tagfill.scenes.make(out / "masks", size=PIXELS, **sizes)
    if not (out / "boxes" / "dataset.yaml").exists():
        boxed(full).save(out / "boxes")
    for kind in ("I", "SP"):
        if not (out / kind / "dataset.yaml").exists():
            tagfill.protocols.budget(full, percent=PERCENT, kind=kind, seed=0).save(out / kind)
    if not (out / "untrained").exists():
        create(BACKBONE, "tscam", full.classes, image_size=PIXELS, seed=0).save(out / "untrained")


def scored(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Scores on test images, in percent, and the first and last loss; made or found."""
    out: Path = options.out
    folder = out / name.replace(", ", "-") if name in ENTRIES else out / "untrained"
    scores: dict[str, float] = {}
    if name in ENTRIES:
        kind, flags = ENTRIES[name]
        known = ["--backbone", BACKBONE, "--pretrained", "none", "--epochs", str(options.epochs)]
        begun = (folder / "run.json").exists()
        fresh = [str(out / kind), *known, *SETTINGS, *flags, "--out", str(folder)]
        tagfill("train", "--quiet", *(["--resume", str(folder)] if begun else fresh))
        epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        losses = [sum(line["loss"].values()) for line in epochs]
        scores |= {"first_loss": losses[0], "last_loss": losses[-1]}
    if "linear" in name:
        return scores | {"cls": tagfill("evaluate", str(folder), str(out / "masks"))["mAP"]}
    for truth in ("boxes", "masks"):
        for maps in ("minmax", "coupled"):
            told = tagfill("evaluate", str(folder), str(out / truth), "--localize", "--maps", maps)
            scores |= {"cls": told["mAP"], f"loc_{truth}_{maps}": told["mAP_loc"]}
    say(f"{name}: {scores}")
    return scores


def tagfill(*arguments: str) -> Any:
    """What a command prints as JSON."""
    command = [sys.executable, "-m", "tagfill", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    main()
