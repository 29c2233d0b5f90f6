"""Show the contents and the problems of a dataset.

Example: `tagfill inspect my-data`

Example: `tagfill inspect my-data --decode --workers 2`

Missing photos are counted and named; `--decode` also finds those that are damaged.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError

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
    else:
        problems += missing_photos(dataset)
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
    terminal.next_step(*next_steps(dataset, folder), quiet=quiet or as_json)


def next_steps(dataset: Dataset, folder: Path) -> list[str]:
    """What is usually done with a dataset: fill in what is missing, or train if nothing is."""
    steps = [f"tagfill train {folder}"]
    if "train" not in dataset.splits:
        return []
    return steps if dataset.labels("train").complete() else [f"tagfill fill {folder} --out filled", *steps]


def missing_photos(dataset: Dataset) -> list[dict[str, str]]:
    """The problem that photos do not exist, with the names of the first few.

    It is an error if the image root or so many photos are missing that training would refuse the dataset.
    """
    from tagfill import images

    try:
        root = images.open_root(dataset.root)
    except TagfillError as error:
        return [{"severity": "error", "problem": str(error)}]
    missing = images.find_missing(root, [name for name in dataset.names() if name])
    if not missing:
        return []
    named = ", ".join(f"'{name[:200]}'" for name in missing[:_NAMED_PHOTOS])
    rest = f" and {len(missing) - _NAMED_PHOTOS:,} more" if len(missing) > _NAMED_PHOTOS else ""
    sentence = f"{len(missing):,} of {len(dataset):,} photos are missing below {dataset.root}: {named}{rest}."
    tolerated = len(missing) <= _TOLERATED * len(dataset)
    return [{"severity": "warning" if tolerated else "error", "problem": sentence}]


_NAMED_PHOTOS = 5
_TOLERATED = 0.01  # share of images that may be bad, the default of training and of feature caches


def show(dataset: Dataset, problems: list[dict[str, str]], *, as_json: bool) -> None:
    """Print the counts of a dataset and its problems."""
    from tagfill.dataset.overview import overview

    counts = overview(dataset)
    if as_json:
        terminal.show_json(
            {
                "name": dataset.name,
                "identities": dataset.identities,
                **counts.to_json(),
                "notes": _notes(dataset),
                "problems": problems,
            }
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
    for note in _notes(dataset):
        terminal.show(note)
    _show_problems(problems)


def _notes(dataset: Dataset) -> list[str]:
    """What was read into a table that does not say it itself."""
    from tagfill.dataset.tables import column_names

    if not isinstance(dataset.annotations, Path) or "kind" in column_names(dataset.annotations):
        return []
    return [f"{dataset.annotations} has no column 'kind'; every row was read as 'image', a label of the whole image."]


_TABLE_CLASSES = 100


def _show_problems(problems: list[dict[str, str]]) -> None:
    for problem in problems:
        terminal.show(f"{problem['severity']}: {problem['problem']}")
