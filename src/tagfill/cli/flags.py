"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from tagfill.errors import TagfillError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Another seed draws everything anew.")]
Workers = Annotated[int, typer.Option("--workers", min=0, help="Processes that decode images; the result is the same.")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes at once; one a core by default.")]
Engine = Annotated[str, typer.Option("--engine", help="What runs them: `joblib` here, or `ray`, also over a cluster.")]
RayAddress = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="A Ray cluster that runs already; without it Ray stays on this machine."),
]
Spread = Annotated[
    str | None,
    typer.Option("--engine", help="Share the work among processes: `joblib` here, or `ray`, also over a cluster."),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of what was chosen; see `tagfill list`."),
]
Backbone = Annotated[str, typer.Option("--backbone", help="timm's name of the backbone.")]
Pretrained = Annotated[
    str,
    typer.Option("--pretrained", help="Weights: `bundled`, `timm` (from its hub), `none`, or a safetensors file."),
]
Boost = Annotated[
    str | None,
    typer.Option(
        metavar="A[,B]", help="BoostLU of the `cam` head: a cell gets A times what its score exceeds B (0) by."
    ),
]


def boost(text: str) -> dict[str, float]:
    """What `--boost A[,B]` means as options of a head.

    >>> boost("5,0.5")
    {'boost': 5.0, 'boost_from': 0.5}
    """
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise TagfillError(f"--boost {text} is not a number or two; write it as in --boost 5 or --boost 5,0.5.")
    return dict(zip(("boost", "boost_from"), numbers, strict=False))


def weights(pretrained: str) -> bool | str:
    """What `--pretrained` means to `tagfill.models.create_backbone`."""
    return {"timm": True, "none": False}.get(pretrained, pretrained)


def interrupt(number: int, frame: FrameType | None) -> None:
    """What to do about a polite request to end: the same as about Ctrl-C."""
    raise KeyboardInterrupt


def require_empty(folder: Path, force: bool) -> None:
    """Refuse to write into a folder that holds something."""
    if folder.exists() and not folder.is_dir():
        raise TagfillError(f"{folder} is a file; choose another --out.")
    if folder.exists() and any(folder.iterdir()) and not force:
        raise TagfillError(f"{folder} is not empty; choose another --out, or give --force to write into it.")
