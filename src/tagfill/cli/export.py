"""Export a model to an ONNX file with a JSON sidecar, or to a folder for a model hub with a model card.

Example: `tagfill export runs/en-scl --onnx photos.onnx --maps`

Example: `tagfill export runs/en-scl --model-card photo-tagger --license apache-2.0`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError
from tagfill.progress import Progress


def export(
    run: Annotated[Path, typer.Argument(help="A run or model folder.")],
    onnx: Annotated[Path | None, typer.Option(help="File to write, ending in .onnx.")] = None,
    model_card: Annotated[
        Path | None,
        typer.Option(help="Folder to write: README.md with scores and limits, config.json and model.safetensors."),
    ] = None,
    maps: Annotated[bool, typer.Option("--maps", help="Add class maps as a second output of the ONNX file.")] = False,
    images: Annotated[
        str | None,
        typer.Option(help="Images for the comparison with torch; by default those of the run's dataset."),
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="Dataset for the scores of the card; by default that of the run.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split whose scores the card reports.", show_default="test, or else val")
    ] = None,
    license_: Annotated[
        str | None, typer.Option("--license", help="License of the model, for the card, such as apache-2.0.")
    ] = None,
    workers: flags.Workers = 0,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Export; an ONNX file whose outputs differ from torch's by more than 1e-4 is not written."""
    if onnx is None and model_card is None:
        raise TagfillError("There is nothing to write; give --onnx FILE, or --model-card FOLDER.")
    facts: dict[str, object] = {}
    if model_card is not None:
        card = _write_card(run, model_card, dataset, split, license_, workers, terminal.progress(quiet or as_json))
        facts["model_card"] = str(card)
        if not as_json:
            terminal.show(f"{card}, with config.json and model.safetensors")
            terminal.next_step(f"tagfill predict {model_card} PHOTOS --out predictions.csv", quiet=onnx is not None)
    if onnx is not None:
        facts |= _export_onnx(run, onnx, maps, images, as_json=as_json)
    if as_json:
        terminal.show_json(facts)


def _write_card(
    run: Path,
    target: Path,
    dataset: Path | None,
    split: str | None,
    license_: str | None,
    workers: int,
    progress: Progress,
) -> Path:
    from tagfill.dataset import Dataset
    from tagfill.experiments import write_model_card

    opened = None if dataset is None else Dataset.open(dataset)
    return write_model_card(
        run, target, dataset=opened, split=split, license_=license_, workers=workers, progress=progress
    )


def _export_onnx(run: Path, onnx: Path, maps: bool, images: str | None, *, as_json: bool) -> dict[str, object]:
    from tagfill import inference

    exported = inference.export(run, onnx, maps=maps, images=images or _dataset_of(run))
    differences = exported.differences
    if not as_json:
        terminal.show(f"{exported.onnx}: {', '.join(exported.outputs)}; sidecar {exported.sidecar.name}")
        compared = [f"{value:.1e} on {kind} images" for kind, value in differences.items()]
        terminal.show(f"largest difference from torch: {', '.join(compared)}")
        terminal.next_step(f"tagfill serve {onnx}", f"tagfill predict {onnx} PHOTOS --out predictions.csv")
    return {
        "onnx": str(exported.onnx),
        "sidecar": str(exported.sidecar),
        "outputs": list(exported.outputs),
        "largest_difference": differences,
        "real_images": exported.real_images,
    }


def _dataset_of(run: Path) -> str | None:
    """The dataset that a run was trained on; None if it is not a run, or the dataset is gone."""
    from tagfill.training import Run

    if not (run / "run.json").is_file():
        return None
    dataset = Path(Run.open(run).recipe.dataset)
    return str(dataset) if (dataset / "dataset.yaml").is_file() else None
