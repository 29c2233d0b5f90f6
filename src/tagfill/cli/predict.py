"""Tell which labels images have, with a trained model or an exported one.

Example: `tagfill predict runs/en-scl photos --out predictions.parquet --workers 2`

Example: `tagfill predict runs/en-scl scenes --split test --top-k 3`

Example: `tagfill predict photos.onnx 'photos/**/*.jpg' --threshold 0.4 --heatmaps maps --out predictions.jsonl`

Without `--out`, results go to standard output: lines to read on a terminal, JSON lines into a pipe, one document with
`--json`. With it they go to a file, in parts: the same command again makes only what is missing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import ImageError, TagfillError

if TYPE_CHECKING:
    from tagfill.inference import ImagePrediction, PredictionFile


def predict(
    run: Annotated[Path, typer.Argument(help="A run or model folder, or an ONNX file.")],
    images: Annotated[
        list[str], typer.Argument(help="Files, folders, patterns in quotes, tar shards, URLs, dataset folders.")
    ],
    split: Annotated[str | None, typer.Option(help="Of a dataset; by default all of its images.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="A file that ends in .parquet, .csv or .jsonl; else standard output.")
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(metavar="[CLASS=]P", help="Probability from which a label counts as present; else the model's."),
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Keep only the most probable labels of an image.")] = None,
    heatmaps: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw class maps of the labels that are present; needs --out.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B", help="For --heatmaps: draw these classes, present or not.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images that the model looks at together.")] = 32,
    workers: Annotated[int, typer.Option(min=0, help="Threads that decode images; the result is the same.")] = 2,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the network; by default one a core.")] = None,
    device: Annotated[str, typer.Option(help="`cpu`, `cuda`, `mps` or `auto`.")] = "cpu",
    engine: flags.Spread = None,
    jobs: flags.Jobs = None,
    ray_address: flags.RayAddress = None,
    force: Annotated[bool, typer.Option("--force", help="Make a file that is there anew.")] = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Predict; of a file that was begun, only what is missing."""
    from tagfill import inference

    progress = terminal.progress(quiet)
    shared: dict[str, Any] = {
        "split": split,
        "threshold": _thresholds(threshold or []),
        "top_k": top_k,
        "batch_size": batch_size,
        "workers": workers,
        "threads": threads,
        "device": device,
        "progress": progress,
    }
    if out is not None:
        filled = inference.predict_to_file(
            run,
            images,
            out,
            heatmaps=heatmaps,
            classes=None if classes is None else [name.strip() for name in classes.split(",")],
            engine=engine,
            jobs=jobs,
            ray_address=ray_address,
            force=force,
            **shared,
        )
        _tell(filled, as_json)
        return
    if heatmaps is not None or engine is not None:
        raise TagfillError("--heatmaps and --engine work on a file of results; give --out too.")
    bad: list[ImageError] = []
    found = inference.predict(run, images, on_bad=bad.append, **shared)
    if as_json:
        predictions = [_line(each) for each in found]
        terminal.show_json({"predictions": predictions, "bad": [[error.image, error.problem] for error in bad]})
    else:
        for each in found:
            terminal.show(_words(each) if sys.stdout.isatty() else json.dumps(_line(each), ensure_ascii=False))
    for error in bad:
        terminal.warn(f"left out: {error.image}: {error.problem}")
    if bad:
        terminal.warn(f"{len(bad):,} images could not be decoded")


def _thresholds(texts: list[str]) -> float | dict[str, float] | None:
    """What `--threshold 0.4` or `--threshold bell=0.3` mean; of two for the same classes the last one wins.

    >>> _thresholds(["0.4"]), _thresholds(["bell=0.3", "cat=0.2"])
    (0.4, {'bell': 0.3, 'cat': 0.2})
    """
    named: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            named[name] = float(number)
        except ValueError:
            raise TagfillError(
                f"--threshold {text} is not a number; write it as in --threshold 0.4 or --threshold bell=0.3."
            ) from None
    if "" in named and len(named) > 1:
        raise TagfillError("--threshold is one for all classes or those of some; give one kind of them.")
    return named.get("", named) if named else None


def _line(found: ImagePrediction) -> dict[str, object]:
    return {"image": found.image, "present": list(found.present), "scores": found.scores}


def _words(found: ImagePrediction) -> str:
    said = ", ".join(f"{label} {found.scores[label]:.2f}" for label in found.present)
    return f"{found.image}  {said or '–'}"


def _tell(filled: PredictionFile, as_json: bool) -> None:
    if as_json:
        terminal.show_json(filled.to_json())
    elif filled.finished:
        terminal.show(f"{filled.out}: {filled.predicted:,} images")
    else:
        terminal.show(f"{filled.out}: {filled.predicted:,} of {filled.images:,} images; other processes make the rest")
    if filled.bad:
        listed = f"; {filled.bad_list} lists them" if filled.finished else ""
        terminal.warn(f"{filled.bad:,} images could not be decoded{listed}")
