"""Making one part of a file of predictions, here or in another process."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tagfill.inference.deciding import decide
from tagfill.inference.heatmaps import Heatmaps
from tagfill.inference.listing import ImageList
from tagfill.inference.looking import look_at
from tagfill.inference.parts import Bad, Parts, table
from tagfill.inference.plan import Plan
from tagfill.inference.predictor import Predictor, open_predictor
from tagfill.progress import SILENT, Bar


@dataclass(frozen=True)
class Opening:
    """How to open the model, for a process that has yet to."""

    path: str
    device: str
    threads: int | None

    def open(self) -> Predictor:
        """Open it."""
        return open_predictor(self.path, device=self.device, threads=self.threads)


@dataclass(frozen=True)
class Job:
    """All that making a part takes; it can be sent to another process.

    Attributes:
        opening: of the model.
        plan: of the whole file.
        parts: where parts go.
        number: of this one.
        images: of this part alone.
        workers: threads that decode.
    """

    opening: Opening
    plan: Plan
    parts: Parts
    number: int
    images: ImageList
    workers: int


@dataclass(frozen=True)
class Made:
    """What came of a job: images that were looked at, and those among them that could not be decoded."""

    images: int
    bad: list[Bad]


def make_elsewhere(job: Job) -> Made:
    """Make a part in a process of its own, which keeps the model open for its next one.

    A part that another process made meanwhile, before it died, is not made again.
    """
    if not job.parts.missing([job.number]):
        return Made(0, [])
    with SILENT.bar("", None) as bar:
        return make(_opened(job.opening), job, bar)


def make(predictor: Predictor, job: Job, bar: Bar) -> Made:
    """Make a part; its pictures are drawn before it counts as made."""
    plan, images, tables, bad = job.plan, job.images, list[pa.Table](), list[Bad]()
    heatmaps = _heatmaps(plan)
    batches = look_at(
        predictor,
        images,
        range(len(images)),
        batch_size=plan.batch_size,
        workers=job.workers,
        maps=heatmaps is not None,
    )
    for batch in batches:
        names = [images.name(number) for number in batch.numbers]
        tables.append(table(names, decide(batch.logits, plan.thresholds, plan.top_k), plan.classes))
        if heatmaps is not None and batch.maps is not None:
            present = decide(batch.logits, plan.thresholds).present
            for row, number in enumerate(batch.numbers):
                heatmaps.draw(images, number, plan.classes, batch.maps[row], present[row])
        bad.extend((images.name(number), problem) for number, problem in batch.bad)
        bar.advance(len(batch.numbers) + len(batch.bad))
    job.parts.write(job.number, pa.concat_tables(tables).unify_dictionaries().combine_chunks(), bad)
    return Made(len(images), bad)


@functools.lru_cache(maxsize=1)
def _opened(opening: Opening) -> Predictor:
    return opening.open()


def _heatmaps(plan: Plan) -> Heatmaps | None:
    if plan.heatmaps is None:
        return None
    chosen = plan.heatmaps["classes"]
    classes = None if chosen is None else tuple(plan.classes.index(name) for name in chosen)
    return Heatmaps(Path(plan.heatmaps["folder"]), classes)
