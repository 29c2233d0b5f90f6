"""Keep what other taggers say about photos as evidence.

Example: `tagfill evidence import scores.csv photos --name clip`

Example: `tagfill evidence list photos`

Example: `tagfill evidence evaluate photos --name clip`

Evidence is stored beside the dataset and never becomes a label by itself. `suggest` and `plan` combine it with the
model, and methods such as `vlpl` and `evidence` learn from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tagfill.cli import flags, terminal

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

DatasetFolder = Annotated[Path, typer.Argument(metavar="DATASET", help="A dataset folder.")]
Name = Annotated[str, typer.Option(help="Name of the evidence.")]
ClassMap = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="THEIRS=OURS", help="Their name of a class and ours, or a CSV file of both."),
]
Expected = Annotated[float | None, typer.Option(min=0, help="Labels per image that you expect.")]
Force = Annotated[bool, typer.Option("--force", help="Replace evidence of the same name.")]


@app.command("import")
def import_(
    scores: Annotated[Path, typer.Argument(help="A .csv or .parquet file with image, label and score, or wide.")],
    dataset: DatasetFolder,
    name: Name,
    scale: Annotated[
        str, typer.Option(help="`logits`, `probabilities`, `softmax` or `cosines`; `auto` finds it.")
    ] = "auto",
    column: Annotated[str | None, typer.Option(help="Column of the scores, by default `score`.")] = None,
    image_column: Annotated[str, typer.Option(help="Column of the images.")] = "image",
    label_column: Annotated[str, typer.Option(help="Column of the labels; a table without it is wide.")] = "label",
    class_map: ClassMap = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out images and labels that the dataset does not have.")
    ] = False,
    force: Force = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Import scores from a table."""
    from tagfill.evidence import import_scores, read_class_map

    result = import_scores(
        scores,
        dataset,
        name=name,
        scale=scale,
        column=column,
        image_column=image_column,
        label_column=label_column,
        class_map=read_class_map(class_map or []),
        skip_unknown=skip_unknown,
        force=force,
    )
    _show_imported(result.to_json(), dataset, quiet=quiet, as_json=as_json)


@app.command("list")
def list_(dataset: DatasetFolder, quiet: flags.Quiet = False, as_json: flags.Json = False) -> None:
    """List the evidence of a dataset."""
    from tagfill.dataset import Dataset
    from tagfill.evidence import evidence_path, list_evidence, read_description

    data = Dataset.open(dataset)
    found = [read_description(evidence_path(data, name)) for name in list_evidence(data)]
    if as_json:
        terminal.show_json(found)
        return
    if not found:
        terminal.show(f"{dataset} has no evidence")
        terminal.next_step(f"tagfill evidence import SCORES {dataset} --name NAME", quiet=quiet)
        return
    rows = [[each["name"], f"{each['scores']:,}", each["scale"], each["source"], each["time"]] for each in found]
    terminal.show_table("Evidence", ["name", "scores", "scale", "source", "time"], rows)
    terminal.next_step(f"tagfill evidence evaluate {dataset} --name {found[0]['name']}", quiet=quiet)


@app.command("evaluate")
def evaluate(
    dataset: DatasetFolder,
    name: Name,
    split: Annotated[str | None, typer.Option(help="Split of the images; all by default.")] = None,
    expected: Expected = None,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Compare evidence with known labels: average precision and calibration."""
    from tagfill.evidence import evaluate_evidence

    quality = evaluate_evidence(dataset, name, split=split, expected=expected)
    summary = quality.to_json()
    if as_json:
        terminal.show_json(summary)
        return
    rows = [
        [each, _percent(values["average_precision"]), f"{values['trust']:.2f}"]
        for each, values in summary["classes"].items()
    ]
    terminal.show_table(f"Evidence {name}", ["class", "average precision", "trust"], rows)
    terminal.show(
        f"mAP {_percent(summary['mAP'])} on {summary['pairs']:,} pairs ({summary['labels']}); "
        f"{summary['coverage']:.0%} of the pairs have a score"
    )
    terminal.show(
        f"Calibration error {_percent(summary['calibration_error'])} after debiasing"
        + ("" if summary["raw_calibration_error"] is None else f", {_percent(summary['raw_calibration_error'])} before")
        + f"; {summary['expected_labels']:.2f} labels per image expected"
    )
    terminal.next_step(f"tagfill suggest {dataset} --run RUN --evidence {name} --out suggestions.parquet", quiet=quiet)


def _show_imported(summary: dict[str, Any], dataset: Path, *, quiet: bool, as_json: bool) -> None:
    """What was stored."""
    if as_json:
        terminal.show_json(summary)
        return
    found = " (found; say --scale if it is another)" if summary["scale_found"] else ""
    terminal.show(
        f"{summary['scores']:,} scores of {summary['images']:,} images and {summary['classes']:,} classes; "
        f"scale: {summary['scale']}{found}"
    )
    if summary["images_without_scores"]:
        terminal.show(f"{summary['images_without_scores']:,} images have no score")
    if summary["skipped_images"] or summary["skipped_labels"]:
        labels = ", ".join(summary["skipped_labels"][:5])
        terminal.show(
            f"Left out: {summary['skipped_images']:,} images and {len(summary['skipped_labels']):,} labels"
            + (f" ({labels}{', …' if len(summary['skipped_labels']) > 5 else ''})" if labels else "")
        )
    terminal.next_step(f"tagfill evidence evaluate {dataset} --name {summary['name']}", quiet=quiet)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"
