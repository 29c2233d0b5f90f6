"""Export a model to an ONNX file with a JSON sidecar.

Example: `tagfill export runs/en-scl --onnx photos.onnx --maps`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal


def export(
    run: Annotated[Path, typer.Argument(help="A run or model folder.")],
    onnx: Annotated[Path, typer.Option(help="File to write, ending in .onnx.")],
    maps: Annotated[bool, typer.Option("--maps", help="Add class maps as a second output.")] = False,
    images: Annotated[
        str | None,
        typer.Option(help="Images for the comparison with torch; by default those of the run's dataset."),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Export; a file whose outputs differ from torch's by more than 1e-4 is not written."""
    from tagfill import inference

    exported = inference.export(run, onnx, maps=maps, images=images or _dataset_of(run))
    differences = exported.differences
    if as_json:
        terminal.show_json(
            {
                "onnx": str(exported.onnx),
                "sidecar": str(exported.sidecar),
                "outputs": list(exported.outputs),
                "largest_difference": differences,
                "real_images": exported.real_images,
            }
        )
        return
    terminal.show(f"{exported.onnx}: {', '.join(exported.outputs)}; sidecar {exported.sidecar.name}")
    compared = [f"{value:.1e} on {kind} images" for kind, value in differences.items()]
    terminal.show(f"largest difference from torch: {', '.join(compared)}")
    terminal.next_step(f"tagfill serve {onnx}", f"tagfill predict {onnx} PHOTOS --out predictions.csv")


def _dataset_of(run: Path) -> str | None:
    """The dataset that a run was trained on; None if it is not a run, or the dataset is gone."""
    from tagfill.training import Run

    if not (run / "run.json").is_file():
        return None
    dataset = Path(Run.open(run).recipe.dataset)
    return str(dataset) if (dataset / "dataset.yaml").is_file() else None
