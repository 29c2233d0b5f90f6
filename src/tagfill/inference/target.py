"""A file of predictions on disk: begun, made in parts, joined, finished.

    OUT.parts/plan.json, 000000.parquet, …   while the work is under way
    OUT, OUT.json, OUT.bad.tsv               afterwards; the last one only where images could not be decoded

`OUT.json` is written last: a file with it is complete, and one whose plan differs is not touched.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagfill.errors import TagfillError
from tagfill.files import alone_in, replacing
from tagfill.inference import plan as plans
from tagfill.inference.joining import join
from tagfill.inference.parts import Parts
from tagfill.inference.plan import Plan


@dataclass(frozen=True)
class Filled:
    """How a file of predictions stands.

    Attributes:
        out: the file.
        images: how many were listed.
        predicted: images with predictions.
        bad: images that could not be decoded; `bad_list` names them.
        made: images that were looked at in this call; the others were there before, or are made elsewhere.
        finished: whether the file is there; if not, other processes still make parts of it.
    """

    out: Path
    images: int
    predicted: int
    bad: int
    made: int
    finished: bool

    @property
    def bad_list(self) -> Path:
        """Lines of name, tab, problem; not there where all images could be decoded."""
        return _beside(self.out, ".bad.tsv")

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        listed = str(self.bad_list) if self.bad and self.finished else None
        counts = {name: getattr(self, name) for name in ("images", "predicted", "bad", "made", "finished")}
        return {"out": str(self.out), **counts, "bad_list": listed}


@dataclass(frozen=True)
class Target:
    """A file of predictions that is to be made, or was.

    Attributes:
        out: the file.
        plan: what it is to hold.
    """

    out: Path
    plan: Plan

    @property
    def parts(self) -> Parts:
        """Where its parts lie until it is finished."""
        return Parts(_beside(self.out.absolute(), ".parts"))

    @property
    def _sidecar(self) -> Path:
        return _beside(self.out, ".json")

    def begin(self, force: bool, world: int) -> Filled | None:
        """Make ready, or tell that all is done already."""
        if force and world > 1:
            raise TagfillError(f"Of several processes none can begin anew; remove {self.out} and {self.parts.folder}.")
        if force:
            shutil.rmtree(self.parts.folder, ignore_errors=True)
            for path in (self._sidecar, self.out):
                path.unlink(missing_ok=True)
        finished = self._finished()
        if finished is not None:
            return finished
        if self.out.exists() and not self.parts.folder.exists():
            raise TagfillError(f"{self.out} is there already; choose another --out, or give --force to make it anew.")
        begun = plans.read(self.parts.plan)
        if begun is None:
            plans.write(self.parts.plan, self.plan)
        else:
            self.plan.check(begun, self.out)
        return None

    def end(self, made: int) -> Filled:
        """Join the parts if all are there and nobody else is at it."""
        with ExitStack() as stack:
            try:
                stack.enter_context(alone_in(self.parts.folder, "joins predictions"))
            except TagfillError:
                return self._standing(made)
            numbers = range(len(self.plan.parts))
            if self._finished() is None:
                if self.parts.missing(numbers):
                    return self._standing(made)
                bad = self._list_bad()
                join(self.parts.rows(numbers), self.out)
                plans.write(self._sidecar, self.plan, predicted=self.plan.count - bad, bad=bad)
            shutil.rmtree(self.parts.folder, ignore_errors=True)  # others who end now may be at it too
        finished = self._finished(made)
        assert finished is not None
        return finished

    def _standing(self, made: int) -> Filled:
        """How far all processes together are."""
        every = range(len(self.plan.parts))
        there = set(every) - set(self.parts.missing(every))
        try:
            bad = sum(len(self.parts.bad(number)) for number in there)
        except FileNotFoundError:  # whoever joined them has just removed them
            finished = self._finished(made)
            if finished is None:
                raise
            return finished
        predicted = sum(len(self.plan.parts[number]) for number in there) - bad
        return Filled(self.out, self.plan.count, predicted, bad, made, finished=False)

    def _finished(self, made: int = 0) -> Filled | None:
        """How the file stands if it is complete."""
        told = plans.read(self._sidecar)
        if told is None or not self.out.exists():
            return None
        self.plan.check(told, self.out)
        return Filled(self.out, self.plan.count, told["predicted"], told["bad"], made, finished=True)

    def _list_bad(self) -> int:
        count, path = 0, _beside(self.out, ".bad.tsv")
        with replacing(path) as file:
            for number in range(len(self.plan.parts)):
                for name, problem in self.parts.bad(number):
                    file.write(f"{name}\t{problem}\n".encode())
                    count += 1
        if not count:
            path.unlink()
        return count


def _beside(out: Path, ending: str) -> Path:
    return out.with_name(out.name + ending)
