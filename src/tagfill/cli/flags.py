"""Options that several commands share, and what they mean."""

from __future__ import annotations

from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from tagfill.errors import TagfillError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of all random draws.")]
Workers = Annotated[
    int, typer.Option("--workers", min=0, help="Processes or threads that decode images; results do not change.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Number of processes; one per core by default.")]
Engine = Annotated[str, typer.Option("--engine", help="`joblib` for this machine; `ray` also for a cluster.")]
RayAddress = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Address of a running Ray cluster; without it, Ray stays on this machine."),
]
WorkEngine = Annotated[
    str | None,
    typer.Option("--engine", help="Split the work among processes: `joblib` on this machine, `ray` also on a cluster."),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of what you chose; see `tagfill list`."),
]
Backbone = Annotated[str, typer.Option("--backbone", help="Name of a timm model.")]
Pretrained = Annotated[
    str,
    typer.Option("--pretrained", help="Weights: `bundled`, `timm` (from its hub), `none`, or a safetensors file."),
]
Boost = Annotated[
    str | None,
    typer.Option(metavar="A[,B]", help="BoostLU of the `cam` head: slope A for scores above B (default 0)."),
]


def parse_boost(text: str) -> dict[str, float]:
    """Options of the head for `--boost A[,B]`.

    >>> parse_boost("5,0.5")
    {'boost': 5.0, 'boost_from': 0.5}
    """
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise TagfillError(f"--boost {text} must be one or two numbers, as in --boost 5 or --boost 5,0.5.")
    return dict(zip(("boost", "boost_from"), numbers, strict=False))


def parse_pretrained(pretrained: str) -> bool | str:
    """Argument of `tagfill.models.create_backbone` for `--pretrained`."""
    return {"timm": True, "none": False}.get(pretrained, pretrained)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Signal handler that ends the process as Ctrl-C does."""
    raise KeyboardInterrupt


def require_empty(folder: Path, force: bool) -> None:
    """Raise if a folder has files in it, unless `force`."""
    if folder.exists() and not folder.is_dir():
        raise TagfillError(f"{folder} is a file; choose another --out.")
    if folder.exists() and any(folder.iterdir()) and not force:
        raise TagfillError(f"{folder} is not empty; choose another --out, or give --force to write into it.")
