"""What is written down and shown when an epoch has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tagfill.progress import Progress
from tagfill.training.folder import Run
from tagfill.training.tensorboard import Events


@dataclass(frozen=True)
class Epoch:
    """An epoch that has ended.

    Attributes:
        stage: name of its stage.
        number: within the stage, from 1.
        of: epochs that the stage has.
        overall: number over all stages.
        lr: learning rate of its last step.
        losses: mean of each term.
        decisions: labels that the method decided, by kind; None if it takes them as they are.
        val_map: validation mAP in percent, if there is a validation split.
        best: whether it is the best one so far.
        seconds: that its steps took.
        images: that were visited.
    """

    stage: str
    number: int
    of: int
    overall: int
    lr: float
    losses: dict[str, float]
    decisions: dict[str, int] | None
    val_map: float | None
    best: bool
    seconds: float
    images: int


def write_down(run: Run, events: Events, epoch: Epoch) -> None:
    """Add an epoch to `metrics.jsonl`, `timings.jsonl` and the events of TensorBoard."""
    name: dict[str, Any] = {"stage": epoch.stage, "epoch": epoch.number}
    line = {**name, "lr": epoch.lr, "loss": epoch.losses, "best": epoch.best}
    scalars = {"lr": epoch.lr, **{f"loss/{term}": value for term, value in epoch.losses.items()}}
    if epoch.val_map is not None:
        line["val_mAP"] = scalars["val/mAP"] = epoch.val_map
    if epoch.decisions is not None:
        line["decisions"] = epoch.decisions
        scalars |= {f"decisions/{kind}": count for kind, count in epoch.decisions.items()}
    run.append("metrics.jsonl", line)
    run.append("timings.jsonl", {**name, "seconds": epoch.seconds, "images": epoch.images})
    events.write(epoch.overall, scalars)


def show(progress: Progress, epoch: Epoch, *, ended: bool) -> None:
    """Say how an epoch went, and whether the stage ends with it before its time."""
    shown = " ".join(f"{name} {value:.4f}" for name, value in epoch.losses.items())
    if epoch.val_map is not None:
        shown += f"  val mAP {epoch.val_map:.2f}{' (best)' if epoch.best else ''}"
    progress.say(f"{epoch.stage} epoch {epoch.number}/{epoch.of}  {shown}")
    if ended and epoch.number < epoch.of:
        progress.say(f"{epoch.stage} stops after epoch {epoch.number}: no better one is expected")
