"""Keep what other taggers say about photos as evidence.

Example: `tagfill evidence import scores.csv photos --name clip`

Example: `tagfill evidence prior photos`

Example: `tagfill evidence text photos --model open_clip:ViT-B-32/laion2b_s34b_b79k`

Example: `tagfill evidence model runs/older photos --name older`

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
from tagfill.errors import TagfillError

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


@app.command("model")
def model(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A run, a model folder, or an ONNX file.")],
    dataset: DatasetFolder,
    name: Name,
    class_map: ClassMap = None,
    workers: flags.Workers = 0,
    device: flags.Device = "auto",
    force: Force = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Score the photos with an older model of yours."""
    from tagfill.evidence import read_class_map
    from tagfill.evidence.models import score_with_model

    result = score_with_model(
        model,
        dataset,
        name=name,
        class_map=read_class_map(class_map or []),
        force=force,
        workers=workers,
        device=device,
        progress=terminal.progress(quiet),
    )
    _show_imported(result.to_json(), dataset, quiet=quiet, as_json=as_json)


@app.command("prior")
def prior(
    dataset: DatasetFolder,
    name: Name = "prior",
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS=TEXT", help="Words for a class, instead of its name, such as tv=television."),
    ] = None,
    features: Annotated[Path | None, typer.Option(help="A feature cache of the bundled backbone.")] = None,
    force: Force = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Score the photos by names of classes alone, with the bundled ImageNet classifier."""
    from tagfill.evidence import read_class_map
    from tagfill.evidence.models import score_with_prior

    result = score_with_prior(
        dataset,
        name=name,
        texts=read_class_map(text or []),
        features=features,
        force=force,
        progress=terminal.progress(quiet),
    )
    _show_imported(result.to_json(), dataset, quiet=quiet, as_json=as_json)


@app.command("text")
def text(
    dataset: DatasetFolder,
    model: Annotated[
        str, typer.Option(metavar="open_clip:ARCH/WEIGHTS", help="Weights are a name, a file, or none.")
    ] = "open_clip:ViT-B-32/laion2b_s34b_b79k",
    name: Name = "clip",
    template: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A sentence with {} for the class, instead of ours.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS=TEXT", help="A synonym or description of a class; repeat it for several."),
    ] = None,
    tiles: Annotated[int, typer.Option(min=0, max=8, help="Rows and columns of tiles; 0 for whole photos only.")] = 3,
    vectors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the text vectors of the classes to this file, and score nothing."),
    ] = None,
    device: flags.Device = "auto",
    force: Force = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Score the photos by text prompts, with a vision-language model of open_clip."""
    from tagfill.evidence.prompts import TEMPLATES, save_class_vectors, score_with_prompts

    words: dict[str, list[str]] = {}
    for pair in text or []:
        label, equals, said = pair.partition("=")
        if not equals or not said.strip():
            raise TagfillError(f"--text '{pair}' is not written as CLASS=TEXT.")
        words.setdefault(label.strip(), []).append(said.strip())
    if vectors is not None:
        templates = template or TEMPLATES
        shape = save_class_vectors(
            dataset, vectors, model=model, templates=templates, texts=words, device=device, force=force
        )
        if as_json:
            terminal.show_json({"file": str(vectors), "classes": shape[0], "size": shape[1]})
            return
        terminal.show(f"Text vectors of {shape[0]:,} classes, of {shape[1]:,} numbers each, in {vectors}")
        settings = f"--set head_options.init=text --set head_options.vectors={vectors}"
        terminal.next_step(f"tagfill train {dataset} --backbone NAME_joint {settings}", quiet=quiet)
        return
    results = score_with_prompts(
        dataset,
        model=model,
        name=name,
        templates=template or TEMPLATES,
        texts=words,
        tiles=tiles,
        device=device,
        force=force,
        progress=terminal.progress(quiet),
    )
    if as_json:
        terminal.show_json([result.to_json() for result in results])
        return
    for result in results:
        _show_imported(result.to_json(), dataset, quiet=True, as_json=False)
    terminal.next_step(f"tagfill evidence evaluate {dataset} --name {name}", quiet=quiet)


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
