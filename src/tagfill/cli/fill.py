"""Fill in missing tags: from a table of tags and a folder of photos to tags, a review list, a report and a model.

Example: `tagfill fill tags.csv --photos photos --out filled`

Example: `tagfill fill labels.json --from coco --photos photos --keep precision=0.95 --format label-studio`

Example: `tagfill fill photos --classes "cup, spoon, plate"`

With `--classes`, photos need no tag at all. After a review, `tagfill fill filled` uses the decisions, and computes only
what changed. Interrupted, it goes on where it stopped when it is started again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError
from tagfill.options import parse_options


def fill(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="TAGS", help="A table of tags (CSV, TSV, Parquet), a dataset folder, or a folder that was filled."
        ),
    ],
    photos: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the photos are.", show_default="the folder of the table")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the result.", show_default="filled")] = None,
    keep: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="What to add: `precision=P` (this share is right) or `probability=P` (each is at least this sure).",
        ),
    ] = "precision=0.9",
    format_: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="FORMAT", help="Also write this format, such as coco; repeatable."),
    ] = None,
    spreadsheet: flags.Spreadsheet = False,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="FORMAT", help="Format of TAGS, if it is not a table of tags.")
    ] = None,
    given: flags.Options = None,
    method: Annotated[str, typer.Option(help="`auto`, or see `tagfill list methods`.")] = "auto",
    backbone: flags.Backbone = "tf_efficientnet_lite0",
    pretrained: flags.Pretrained = "bundled",
    image_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Side of the square input.", show_default="320, or the backbone's"),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Use this feature cache, and complete it.", show_default="one below --out")
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="TAGS is a folder of photos without tags: guess these classes by name."),
    ] = None,
    expected: Annotated[
        float | None, typer.Option(min=0, help="With --classes: labels per photo that you expect.", show_default="1.5")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training.")] = 10,
    folds: Annotated[int, typer.Option(min=2, help="Models that check each other's photos.")] = 5,
    seed: flags.Seed = 0,
    no_evidence: Annotated[
        bool, typer.Option("--no-evidence", help="Use neither evidence nor the ImageNet prior.")
    ] = False,
    device: flags.Device = "auto",
    jobs: flags.Jobs = None,
    workers: flags.Workers = 0,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Fill."""
    from tagfill import formats
    from tagfill.filling import fill as fill_in
    from tagfill.filling.summary import FILLED, MODEL, SUMMARY_FILE

    if (source / SUMMARY_FILE).is_file() and (out is not None or photos is not None):
        raise TagfillError(f"{source} was filled before and knows its photos; leave out --photos and --out.")
    if classes is not None:
        _guess(source, classes, out or Path("filled"), keep, expected, features, quiet=quiet, as_json=as_json)
        return
    if expected is not None:
        raise TagfillError("--expected is for --classes, photos without any tag; leave it out.")
    options = {}
    if given:
        read = formats.get(from_ or "tags").read
        options = parse_options(read, given, f"format '{from_ or 'tags'}'")
    result = fill_in(
        source,
        photos=photos,
        out=out or "filled",
        keep=keep,
        formats=format_ or (),
        spreadsheet=spreadsheet,
        source_format=from_,
        options=options,
        method=method,
        backbone=backbone,
        pretrained=flags.parse_pretrained(pretrained),
        image_size=image_size,
        features=features,
        epochs=epochs,
        folds=folds,
        seed=seed,
        evidence=not no_evidence,
        device=device,
        jobs=jobs,
        workers=workers,
        progress=terminal.progress(quiet),
    )
    if as_json:
        terminal.show_json({"folder": str(result.folder), **result.summary.model_dump()})
        return
    for sentence in result.summary.sentences():
        terminal.show(sentence)
    terminal.show(f"Tags: {result.folder / FILLED}")
    terminal.show(f"Report: {result.report}")
    lower = result.summary.lower_keep()
    steps = [f"tagfill review {result.folder}   (then: tagfill fill {result.folder})"]
    if result.summary.added:
        steps.append(f"tagfill audit {result.folder}")
    elif lower is not None:
        steps.append(f"tagfill fill {result.folder} --keep {lower}")
    steps.append(f"tagfill predict {result.folder / MODEL} NEW_PHOTOS --out new-tags.csv")
    terminal.next_step(*steps, quiet=quiet)


def _guess(
    photos: Path,
    classes: str,
    out: Path,
    keep: str,
    expected: float | None,
    features: Path | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Guess the tags of photos without any, from names of classes."""
    from tagfill.filling.summary import FILLED, KNOWN, TO_REVIEW
    from tagfill.filling.unlabeled import fill_unlabeled

    found = fill_unlabeled(
        photos,
        classes.split(","),
        out=out,
        keep=keep,
        expected=expected,
        features=features,
        progress=terminal.progress(quiet),
    )
    if as_json:
        terminal.show_json(found.to_json())
        return
    terminal.show(
        f"{found.added:,} tags added to {found.photos:,} photos by the names of the classes alone; nothing was "
        "measured, so check them"
    )
    terminal.show(f"Tags: {out / FILLED}")
    then = f"(then: tagfill fill {out / KNOWN} --out {out}-2)"
    terminal.next_step(f"tagfill review {out / KNOWN} --suggestions {out / TO_REVIEW}   {then}", quiet=quiet)
