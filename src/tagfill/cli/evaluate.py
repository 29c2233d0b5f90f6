"""Score a trained model on a split.

Example: `tagfill evaluate runs/en-scl scenes --split test`

Example: `tagfill evaluate runs/en-scl scenes --ceiling runs/full --csv classes.csv`

Example: `tagfill evaluate runs/points scenes --localize --json`

Example: `tagfill evaluate runs/an scenes --boost 5`
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError

if TYPE_CHECKING:
    from tagfill.training import Evaluation


AFFORDABLE = 10_000_000
"""Largest images × classes for which the confidence interval of mAP is computed by default, in under a minute."""


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run or model folder.")],
    dataset: Annotated[Path, typer.Argument(help="A dataset folder with the same classes.")],
    split: Annotated[str, typer.Option(help="Split to score.")] = "test",
    features: Annotated[Path | None, typer.Option(help="Use this feature cache instead of images.")] = None,
    ceiling: Annotated[
        Path | None,
        typer.Option(help="Run to compare with, such as one trained on complete labels; sorts classes by loss."),
    ] = None,
    definition: Annotated[
        str, typer.Option(help="Average precision: `step` (as scikit-learn), `rank`, `voc12` or `voc07`.")
    ] = "step",
    empty: Annotated[
        str,
        typer.Option(help="Classes without known positives or negatives: `skip`, or count as 0 or 1 (`zero`)."),
    ] = "skip",
    bootstrap: Annotated[
        int | None,
        typer.Option(min=0, help="Resamples for the interval of mAP, 0 for none. Default: 1000, 0 on huge splits."),
    ] = None,
    groups: Annotated[
        int | None, typer.Option(min=1, help="Also show mAP of this many groups of classes, rarest first.")
    ] = None,
    localize: Annotated[
        bool,
        typer.Option("--localize", "--localise", help="Also score class maps against masks and boxes (mAP-loc)."),
    ] = False,
    maps: Annotated[
        str, typer.Option(help="For --localize, scaling of class maps: `minmax`, `sigmoid` or `coupled`.")
    ] = "minmax",
    boost: flags.Boost = None,
    no_boost: Annotated[bool, typer.Option("--no-boost", help="Evaluate without the model's boost.")] = False,
    seed: flags.Seed = 0,
    workers: flags.Workers = 0,
    csv: Annotated[Path | None, typer.Option(help="Write the table of classes to this CSV file.")] = None,
    spreadsheet: flags.Spreadsheet = False,
    device: flags.Device = "auto",
    as_json: flags.Json = False,
) -> None:
    """Evaluate."""
    from tagfill import training
    from tagfill.dataset import Dataset
    from tagfill.io import atomic_write

    if boost and no_boost:
        raise TagfillError("--boost and --no-boost cannot be combined; give one of them.")
    head_options = {"boost": 1.0} if no_boost else flags.parse_boost(boost) if boost else {}
    data = Dataset.open(dataset)
    if bootstrap is None:
        affordable = len(data.split(split)) * len(data.classes) <= AFFORDABLE
        bootstrap = 1000 if affordable and (definition, empty) == ("step", "skip") else 0
    result = training.evaluate(
        run,
        data,
        split=split,
        features=features,
        device=device,
        workers=workers,
        localize=maps if localize else None,
        definition=definition,  # type: ignore[arg-type]  # checked there
        empty=empty,  # type: ignore[arg-type]
        ceiling=ceiling,
        bootstrap=bootstrap,
        groups=groups,
        seed=seed,
        progress=terminal.progress(as_json),
        **head_options,
    )
    if csv is not None:
        csv.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(csv) as file:
            file.write(result.to_csv(spreadsheet=spreadsheet).encode())
    if as_json:
        terminal.show_json(result.to_json())
        return
    _show(result)
    terminal.next_step(
        f"tagfill predict {run} PHOTOS --out predictions.csv",
        f"tagfill suggest {dataset} --run {run} --out suggestions.csv",
    )


def _show(result: Evaluation) -> None:
    """Print the tables of classes and of confusions, and the summary."""
    rows = [[_cell(name, value) for name, value in zip(result.columns(), row, strict=True)] for row in result.rows()]
    terminal.show_table(f"{result.split}: {result.images:,} images, worst class first", result.columns(), rows)
    if result.confusions:
        confused = [
            [result.classes[one.predicted], result.classes[one.shown], f"{one.together:,}", f"{one.expected:.1f}"]
            for one in result.confusions
        ]
        columns = ["predicted", "actually present", "images", "by chance"]
        terminal.show_table("Classes predicted where another class is present", columns, confused)
    for line in _summary(result):
        terminal.show(line)


def _summary(result: Evaluation) -> list[str]:
    interval, counts = result.interval, result.counts
    range_ = "" if interval is None else f" ({interval.level:.0%}: {_percent(interval.low)}–{_percent(interval.high)})"
    ceiling = "" if result.ceiling is None else f", ceiling {_percent(result.ceiling_mean)}"
    at_k = ", ".join(f"P@{k} {_percent(at.precision)} R@{k} {_percent(at.recall)}" for k, at in result.at_k.items())
    lines = [
        f"mAP {_percent(result.mean)}{range_}{ceiling}",
        f"mF1 {_percent(counts.mean_f1)}, CF1 {_percent(counts.class_f1)}, OF1 {_percent(counts.overall_f1)}; "
        f"thresholds {result.thresholds_from}",
        f"top-1 {_percent(result.top_1)}, {at_k}",
        f"calibration error {_percent(result.calibration_error)} ({_calibration(result)})",
        "mAP by number of labels: "
        + ", ".join(f"{name} {_percent(value)}" for name, (value, images) in result.by_label_count.items() if images),
    ]
    if result.groups is not None:
        means = enumerate(result.groups.tolist(), start=1)
        lines.append("mAP of groups, rarest first: " + ", ".join(f"G{at} {_percent(value)}" for at, value in means))
    if result.localized is not None:
        lines.append(f"mAP-loc {_percent(result.localized.mean)}")
    for state, number in (("present", result.positives), ("absent", result.known - result.positives)):
        if empty := int((number == 0).sum()):
            lines.append(f"{empty:,} classes are never known to be {state} (--empty {result.empty})")
    if result.unknown:
        lines.append(f"{result.unknown:,} of {result.images * len(result.classes):,} entries are unknown and ignored")
    return lines


def _calibration(result: Evaluation) -> str:
    if result.calibration_from is None:
        return "not calibrated"
    origin = "measured on validation" if result.calibration_from == "measured" else "estimated from tags"
    return f"calibration {origin}; {_percent(result.raw_calibration_error)} without"


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:.3f}" if column == "threshold" else f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def _percent(value: float) -> str:
    return "–" if value != value else f"{100 * value:.2f}"
