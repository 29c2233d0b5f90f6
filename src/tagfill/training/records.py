"""Records for analyses, written if the recipe asks for them (`record`); they do not change training.

decisions   every label that the method decided: image, class, kind, value
scores      of a sample of the training images: probabilities at their visit, and estimates at the end of the epoch
heatmaps    of a few of them: the running heatmaps at the end of the epoch

    RUN/records/<stage>-<epoch>-rank<rank>.safetensors     one file per epoch and process

Checkpoints hold what an unfinished epoch has gathered, so a resumed run writes the same files. True labels are not
read here: analyses join them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from torch import Tensor

from tagfill.contract import Batch, Decisions, Prediction, Task
from tagfill.images.geometry import Geometry
from tagfill.io import atomic_write
from tagfill.memory.estimates import Estimates
from tagfill.memory.heatmaps import Heatmaps
from tagfill.rng import generator
from tagfill.training.run_folder import Run

KINDS = ("rejected", "flipped", "ignored", "pseudo-labelled")
SCORED, PICTURED = 2000, 16  # training images whose scores and whose heatmaps are recorded
_ROOM = 4_000_000  # values per epoch; with many classes fewer images are recorded
_COLUMNS = {"image": torch.int32, "label": torch.int32, "kind": torch.uint8, "value": torch.int8}


def sample_images(seed: int, size: int, most: int, values: int) -> NDArray[np.int64]:
    """Positions of the training images that are recorded, ascending; they depend on the seed only.

    Args:
        seed: of the run.
        size: the number of training images.
        most: how many images at most.
        values: recorded per image.

    >>> len(sample_images(0, 5000, 2000, 80)), len(sample_images(0, 5000, 2000, 8000))
    (2000, 500)
    """
    count = min(size, most, max(1, _ROOM // max(values, 1)))
    return np.sort(generator(seed, "record").permutation(size)[:count])


class Recorder:
    """Gathers what an epoch of a stage records, and writes it at the end of the epoch.

    Args:
        run: whose folder it writes into.
        stage: position of the stage in the recipe.
        wanted: some of `decisions`, `scores` and `heatmaps`.
        task: of the stage.
    """

    def __init__(self, run: Run, stage: int, wanted: tuple[str, ...], task: Task) -> None:
        self._run, self._stage, self._wanted, self._task = run, stage, wanted, task
        self._size, self._width = task.labels.shape
        self._scored = self._own(SCORED, self._width) if "scores" in wanted else np.empty(0, np.int64)
        self._decided: list[dict[str, Tensor]] = []
        self._scores = self._unseen()

    def visit(self, batch: Batch, prediction: Prediction, decided: Decisions | None) -> None:
        """Record a micro-batch; of several views the first."""
        if "decisions" in self._wanted and decided is not None:
            names, each = np.unique(decided.kind, return_inverse=True)
            kind = np.array([KINDS.index(name) for name in names.tolist()], dtype=np.int64)[each]
            columns = {"image": decided.image, "label": decided.label, "kind": kind, "value": decided.value}
            self._decided.append({name: torch.from_numpy(columns[name]).to(_COLUMNS[name]) for name in _COLUMNS})
        if "scores" in self._wanted:
            index = batch.index.numpy(force=True)
            kept = np.flatnonzero(np.isin(index, self._scored))
            if len(kept):
                rows = torch.from_numpy(np.searchsorted(self._scored, index[kept]))
                self._scores[rows] = prediction.logits[torch.from_numpy(kept)].detach().sigmoid().half().cpu()

    def end_epoch(self, epoch: int) -> None:
        """Write what was gathered, and start over."""
        ranks = self._task.ranks
        kept = {**self.state_dict(), **self._estimates(), **self._heatmaps()}
        folder = self._run.folder / "records"
        with atomic_write(folder / _name(self._stage, epoch, ranks.rank)) as file:
            file.write(save({name: value.contiguous() for name, value in kept.items()}))
        if ranks.rank == 0:  # files of more processes, from before the run was resumed with fewer
            for path in folder.glob(_name(self._stage, epoch, "*")):
                if int(path.stem.rpartition("rank")[2]) >= ranks.world:
                    path.unlink()
        self._decided, self._scores = [], self._unseen()

    def state_dict(self) -> dict[str, Tensor]:
        """What was gathered since the epoch began."""
        state: dict[str, Tensor] = {}
        if "decisions" in self._wanted:
            for name, kind in _COLUMNS.items():
                parts = [part[name] for part in self._decided]
                state[f"decisions.{name}"] = torch.cat([torch.empty(0, dtype=kind), *parts])
        if "scores" in self._wanted:
            state |= {"scores.index": torch.from_numpy(self._scored), "scores.probabilities": self._scores}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load what `state_dict` returned."""
        if "decisions.image" in state:
            self._decided = [{name: state[f"decisions.{name}"] for name in _COLUMNS}]
        if "scores.probabilities" in state:
            self._scores = state["scores.probabilities"].clone()

    def _unseen(self) -> Tensor:
        return torch.full((len(self._scored), self._width), torch.nan, dtype=torch.float16)

    def _own(self, most: int, values: int) -> NDArray[np.int64]:
        chosen = sample_images(self._task.seed, self._size, most, values)
        return chosen[np.isin(chosen, self._task.shard)]

    def _estimates(self) -> dict[str, Tensor]:
        estimates = self._task.memory.find("estimates")
        if "scores" not in self._wanted or not isinstance(estimates, Estimates):
            return {}
        return {"scores.estimates": estimates.read(torch.from_numpy(self._scored)).sigmoid().half()}

    def _heatmaps(self) -> dict[str, Tensor]:
        heatmaps = self._task.memory.find("heatmaps")
        if "heatmaps" not in self._wanted or not isinstance(heatmaps, Heatmaps) or not heatmaps.chosen:
            return {}
        side, some = heatmaps.size, heatmaps.kept(torch.from_numpy(self._task.shard[:1]))
        images = self._own(PICTURED, side * side * (self._width if some is None else some.shape[1]))
        index = torch.from_numpy(images)
        kept = heatmaps.kept(index)
        every = torch.arange(self._width).expand(len(images), -1)
        whole = heatmaps.read(index, Geometry.whole(len(images)), (side, side))
        return {
            "heatmaps.index": index,
            "heatmaps.classes": (every if kept is None else kept).int(),
            "heatmaps.values": (255 * whole).round().to(torch.uint8),
        }


@dataclass(frozen=True)
class Recorded:
    """The records of an epoch, from all processes.

    Attributes:
        stage: position of its stage in the recipe.
        epoch: within the stage, from 1.
        parts: tensors of each process.
    """

    stage: int
    epoch: int
    parts: tuple[dict[str, Tensor], ...]

    def has(self, kind: str) -> bool:
        """Whether it holds `decisions`, `scores`, `scores.estimates` or `heatmaps`."""
        return any(name.startswith(kind) for part in self.parts for name in part)

    def column(self, name: str) -> NDArray[Any]:
        """A tensor of all processes, one after the other."""
        return np.concatenate([part[name].numpy() for part in self.parts if name in part])


def read_records(run: Run) -> Iterator[Recorded]:
    """Read the recorded epochs of a run, in order, one at a time."""
    found: dict[tuple[int, int], list[Path]] = {}
    for path in sorted((run.folder / "records").glob("*.safetensors")):
        number, visited, _ = path.stem.split("-")
        found.setdefault((int(number), int(visited)), []).append(path)
    for (stage, epoch), paths in sorted(found.items()):
        yield Recorded(stage, epoch, tuple(load_file(path) for path in paths))


def _name(stage: int, epoch: int, rank: int | str) -> str:
    return f"{stage}-{epoch:05}-rank{rank}.safetensors"
