"""Predict labels for images, with a trained or an exported model.

Example: `tagfill predict runs/en-scl photos --out predictions.parquet --workers 2`

Example: `tagfill predict runs/en-scl scenes --split test --top-k 3`

Example: `tagfill predict photos.onnx 'photos/**/*.jpg' --threshold 0.4 --heatmaps maps --out predictions.jsonl`

Without `--out`, results go to standard output: text on a terminal, JSON lines to a pipe, one document with `--json`.
With `--out` they go to a file; the same command continues an interrupted one.

Photos of a dataset keep their known tags, and their other labels get the probability that they were missed;
`--ignore-tags` predicts from the pixels alone.
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
        list[str], typer.Argument(help="Files, folders, quoted patterns, tar shards, URLs or dataset folders.")
    ],
    split: Annotated[str | None, typer.Option(help="Split of a dataset; all images by default.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="A .parquet, .csv or .jsonl file; standard output by default.")
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(metavar="[CLASS=]P", help="Probability from which a label is present; by default the model's."),
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Keep only the K most probable labels per image.")] = None,
    raw_scores: Annotated[
        bool, typer.Option("--raw-scores", help="Give the sigmoid of the scores, even if the model is calibrated.")
    ] = False,
    ignore_tags: Annotated[
        bool, typer.Option("--ignore-tags", help="Predict photos of a dataset from their pixels alone.")
    ] = False,
    spreadsheet: flags.Spreadsheet = False,
    heatmaps: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for heatmaps of present labels; needs --out.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B", help="For --heatmaps: draw these classes, whether present or not.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 32,
    workers: Annotated[int, typer.Option(min=0, help="Threads that decode images; does not change the result.")] = 2,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the network; one per core by default.")] = None,
    device: flags.Device = "auto",
    engine: flags.WorkEngine = None,
    jobs: flags.Jobs = None,
    ray_address: flags.RayAddress = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Predict."""
    from tagfill import inference

    progress = terminal.progress(quiet)
    shared: dict[str, Any] = {
        "split": split,
        "threshold": _thresholds(threshold or []),
        "top_k": top_k,
        "raw_scores": raw_scores,
        "ignore_tags": ignore_tags,
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
            spreadsheet=spreadsheet,
            heatmaps=heatmaps,
            classes=None if classes is None else [name.strip() for name in classes.split(",")],
            engine=engine,
            jobs=jobs,
            ray_address=ray_address,
            force=force,
            **shared,
        )
        _show(filled, as_json)
        if filled.finished:
            terminal.next_step(*_next_steps(run, images, out), quiet=quiet or as_json)
        return
    if heatmaps is not None or engine is not None or spreadsheet:
        raise TagfillError("--heatmaps, --engine and --spreadsheet need a file for the results; give --out too.")
    bad: list[ImageError] = []
    found = inference.predict(run, images, on_bad=bad.append, **shared)
    if as_json:
        predictions = [_line(each) for each in found]
        terminal.show_json({"predictions": predictions, "bad": [[error.image, error.problem] for error in bad]})
    else:
        for each in found:
            terminal.show(_text(each) if sys.stdout.isatty() else json.dumps(_line(each), ensure_ascii=False))
    for error in bad:
        terminal.warn(f"left out: {error.image}: {error.problem}")
    if bad:
        terminal.warn(f"{len(bad):,} images could not be decoded")


def _thresholds(texts: list[str]) -> float | dict[str, float] | None:
    """Parse `--threshold 0.4` or `--threshold bell=0.3`; the last one for a class wins.

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
        raise TagfillError("--threshold was given both for all classes and for single ones; give one or the other.")
    return named.get("", named) if named else None


def _next_steps(run: Path, images: list[str], out: Path) -> list[str]:
    steps = [f"tagfill write {out} --out predicted-tags.csv"]
    if out.suffix != ".jsonl" and len(images) == 1 and (Path(images[0]) / "dataset.yaml").is_file():
        steps.append(f"tagfill review {images[0]} --suggestions {out} --run {run}")
    return steps


def _line(found: ImagePrediction) -> dict[str, object]:
    return {"image": found.image, "present": list(found.present), "scores": found.scores}


def _text(found: ImagePrediction) -> str:
    labels = ", ".join(
        f"{label} (given)" if label in found.given else f"{label} {found.scores[label]:.2f}" for label in found.present
    )
    return f"{found.image}  {labels or '–'}"


def _show(filled: PredictionFile, as_json: bool) -> None:
    if as_json:
        terminal.show_json(filled.to_json())
    elif filled.finished:
        terminal.show(f"{filled.out}: {filled.predicted:,} images")
    else:
        terminal.show(f"{filled.out}: {filled.predicted:,} of {filled.images:,} images; other processes still run")
    if filled.bad:
        listed = f"; {filled.bad_list} lists them" if filled.finished else ""
        terminal.warn(f"{filled.bad:,} images could not be decoded{listed}")
