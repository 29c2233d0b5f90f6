"""Options that several commands share, and what they mean."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from tagfill.cli import terminal
from tagfill.errors import TagfillError

TOKEN_VARIABLE = "TAGFILL_TOKEN"


def _refuse_empty_variable(token: str | None) -> str | None:
    """Typer takes an empty variable for one that is not set, which would turn authentication off."""
    if token is None and TOKEN_VARIABLE in os.environ:
        raise TagfillError(f"The environment variable {TOKEN_VARIABLE} is empty; give a long secret, or unset it.")
    return token


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
Spreadsheet = Annotated[
    bool,
    typer.Option("--spreadsheet", help="CSV: write an apostrophe before names that a spreadsheet would run."),
]
Token = Annotated[
    str | None,
    typer.Option(envvar=TOKEN_VARIABLE, callback=_refuse_empty_variable, help="Secret that requests must show."),
]
Backbone = Annotated[str, typer.Option("--backbone", help="Name of a timm model.")]
Pretrained = Annotated[
    str,
    typer.Option("--pretrained", help="Weights: `bundled`, `timm` (from its hub), `none`, or a safetensors file."),
]
RunArgument = Annotated[Path | None, typer.Argument(metavar="RUN", help="The same as --run.", show_default=False)]
Device = Annotated[
    str,
    typer.Option("--device", help="`cpu`, `cuda`, `mps`, or `auto`: an accelerator if there is one, else the CPU."),
]
Cache = Annotated[
    bool,
    typer.Option(
        "--cache/--no-cache", help="Without --features, cache features if only the head trains; or train on images."
    ),
]
Evidence = Annotated[
    list[str] | None,
    typer.Option("--evidence", metavar="NAME", help="Evidence of the dataset to use; all by default."),
]
NoEvidence = Annotated[bool, typer.Option("--no-evidence", help="Do not use evidence of the dataset.")]
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


def chosen_evidence(names: list[str] | None, without: bool) -> list[str] | None:
    """Names of evidence for `--evidence` and `--no-evidence`; None for all.

    >>> chosen_evidence(None, False), chosen_evidence(None, True), chosen_evidence(["clip"], False)
    (None, [], ['clip'])
    """
    if names and without:
        raise TagfillError("--evidence and --no-evidence contradict each other; leave one out.")
    return [] if without else names or None


def parse_pretrained(pretrained: str) -> bool | str:
    """Argument of `tagfill.models.create_backbone` for `--pretrained`."""
    return {"timm": True, "none": False}.get(pretrained, pretrained)


def dataset_and_run(command: str, dataset: Path, argument: Path | None, option: Path | None) -> tuple[Path, Path]:
    """The dataset and the run of a command that takes them as `DATASET --run RUN` or `DATASET RUN`.

    The order of version 0.1, `RUN DATASET`, still works and prints a warning.

    Args:
        command: its name, for messages.
        dataset: first argument.
        argument: second argument, if it was given.
        option: value of `--run`, if it was given.
    """
    if (argument is None) == (option is None):
        problem = "needs a run" if argument is None else "got a run twice"
        raise TagfillError(f"'tagfill {command}' {problem}; write it as: tagfill {command} DATASET --run RUN.")
    run = argument or option
    assert run is not None
    if not (dataset / "dataset.yaml").is_file() and (run / "dataset.yaml").is_file():
        terminal.warn(
            f"Warning: the dataset comes first now: tagfill {command} {run} --run {dataset}; the old order will stop "
            "working in version 0.3."
        )
        return run, dataset
    return dataset, run


def filled_folder(folder: Path) -> Path | None:
    """The folder, if `tagfill fill` made it."""
    return folder if (folder / "filled.json").is_file() else None


def interrupt(number: int, frame: FrameType | None) -> None:
    """Signal handler that ends the process as Ctrl-C does."""
    raise KeyboardInterrupt


def task() -> str:
    """The command line without --force: the same one may go on in a folder that a killed process left."""
    return shlex.join(word for word in sys.argv[1:] if word != "--force")
