"""Show the contents and the problems of a dataset.

Example: `tagfill inspect my-data`

Example: `tagfill inspect my-data --decode --workers 2`
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tagfill.cli import flags, terminal

if TYPE_CHECKING:
    from tagfill.dataset import Dataset


def inspect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A dataset folder.")],
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image and list those that fail.")] = False,
    workers: flags.Workers = 0,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Inspect; exit with code 2 if the dataset cannot be used for training."""
    from tagfill.dataset import Dataset
    from tagfill.dataset.validation import validate

    progress = terminal.progress(quiet)
    dataset = Dataset.open(folder)
    found = validate(dataset, progress=progress)
    problems = [{"severity": problem.severity, "problem": str(problem)} for problem in found]
    if decode:
        from tagfill import images

        for error in images.check_images(
            images.open_root(dataset.root), dataset.names(), workers=workers, progress=progress
        ):
            problems.append({"severity": "error", "problem": str(error)})
    broken = any(problem.severity == "error" for problem in found)
    if broken:
        if as_json:
            terminal.show_json({"problems": problems})
        else:
            _show_problems(problems)
    else:
        show(dataset, problems, as_json=as_json)
    if any(problem["severity"] == "error" for problem in problems):
        raise typer.Exit(2)


def show(dataset: Dataset, problems: list[dict[str, str]], *, as_json: bool) -> None:
    """Print the counts of a dataset and its problems."""
    from tagfill.dataset.dataset import overview

    counts = overview(dataset)
    if as_json:
        terminal.show_json(
            {"name": dataset.name, "identities": dataset.identities, **counts.to_json(), "problems": problems}
        )
        return
    terminal.show_table(
        dataset.name,
        ["split", "images", "annotated", "positives", "negatives", "known", "per image"],
        [
            [
                name,
                f"{part.images:,}",
                f"{part.annotated:,}",
                f"{part.positives:,}",
                f"{part.negatives:,}",
                f"{100 * part.share:.2f}%",
                f"{part.positives_per_image:.2f}",
            ]
            for name, part in counts.splits.items()
        ],
    )
    if len(dataset.classes) <= _TABLE_CLASSES:
        terminal.show_table(
            "positives per class",
            ["class", *counts.splits],
            [[label, *(f"{part.classes[label][0]:,}" for part in counts.splits.values())] for label in dataset.classes],
        )
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.kinds.items())
    cost = f"; {counts.seconds / 3600:,.1f} hours of annotation" if counts.seconds else ""
    terminal.show(f"{len(dataset.classes):,} classes, {counts.rows:,} rows ({kinds}){cost}")
    _show_problems(problems)


_TABLE_CLASSES = 100


def _show_problems(problems: list[dict[str, str]]) -> None:
    for problem in problems:
        terminal.show(f"{problem['severity']}: {problem['problem']}")
