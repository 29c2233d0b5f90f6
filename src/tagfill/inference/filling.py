"""Predictions for any number of images, in a file; work that was interrupted goes on, and may be shared.

The images are dealt out in parts. Each part is a file of its own until all are there (`tagfill.inference.parts`), so a
rerun makes only those that are missing, and memory holds one part at most. Several processes may work on the same
file, each on parts of its own:

- those that torchrun starts (`RANK` and `WORLD_SIZE`): process r of n makes parts r, r+n, r+2n, …, and whoever ends
  last joins them;
- tasks of an engine (`tagfill.engines`), a part each: processes of this machine, or Ray over a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tagfill.engines import Engine, create_engine
from tagfill.errors import TagfillError, unknown_name
from tagfill.inference.deciding import Threshold, chosen_thresholds
from tagfill.inference.joining import check_ending
from tagfill.inference.listing import Images, find_images
from tagfill.inference.making import Job, Made, Opening, make, make_elsewhere
from tagfill.inference.plan import Plan
from tagfill.inference.predicting import BATCH_SIZE, check_top_k
from tagfill.inference.predictor import ModelPath, Predictor, model_path
from tagfill.inference.target import Filled, Target
from tagfill.progress import SILENT, Progress


def predict_to_file(
    run: ModelPath,
    images: Images | Iterable[Images],
    out: str | os.PathLike[str],
    *,
    split: str | None = None,
    threshold: Threshold = None,
    top_k: int | None = None,
    heatmaps: str | os.PathLike[str] | None = None,
    classes: Sequence[str] | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    engine: str | None = None,
    jobs: int | None = None,
    ray_address: str | None = None,
    force: bool = False,
    progress: Progress = SILENT,
) -> Filled:
    """Write what a model says about images into a file; of a file that was begun, only what is missing.

    Args:
        run: a run or its folder, a model folder, or an ONNX file.
        images: files, folders, patterns, shards, URLs, datasets, see `find_images`.
        out: a file that ends in .parquet, .csv or .jsonl.
        split: of datasets; without it all of their images.
        threshold: of all classes, or of some by name, in place of the model's own.
        top_k: only the most probable labels of each image.
        heatmaps: a folder for pictures of class maps, of the labels that are present.
        classes: draw these classes instead, whether they are present or not.
        batch_size: images that the model looks at together.
        workers: threads that decode.
        threads: of the network; by default one a core.
        device: `cpu`, `cuda`, `mps` or `auto`.
        engine: `joblib` for several processes of this machine, `ray` for those of a cluster, which must all see the
            same files; without it this process does everything.
        jobs: processes of the engine at once on this machine; one a core by default.
        ray_address: of a Ray cluster that runs already.
        force: make a file that is there anew.
        progress: told about each batch and each image that cannot be decoded.

    Raises:
        TagfillError: if the file was made or begun with another model, other images or other settings.
    """
    out = Path(out)
    check_ending(out)
    check_top_k(top_k)
    opening = Opening(str(model_path(run).absolute()), device, threads)  # a worker may have another working folder
    predictor = opening.open()
    if heatmaps is not None:
        predictor.check_maps()
    elif classes is not None:
        raise TagfillError("Classes are chosen for pictures of class maps; give a folder for --heatmaps too.")
    found = find_images(images, split=split, progress=progress)
    plan = Plan(
        model=predictor.identity,
        images=found.identity(),
        count=len(found),
        classes=predictor.classes,
        thresholds=chosen_thresholds(predictor.classes, predictor.thresholds, threshold),
        top_k=top_k,
        heatmaps=None if heatmaps is None else _heatmaps(Path(heatmaps), classes, predictor.classes),
        batch_size=batch_size,
    )
    rank, world = _rank_and_world()
    if engine is not None and world > 1:
        raise TagfillError("Several processes share the work already (WORLD_SIZE); leave out --engine.")
    spread = None if engine is None else create_engine(engine, workers=jobs, address=ray_address)
    target = Target(out, plan)
    done = target.begin(force, world)
    if done is not None:
        return done
    missing = target.parts.missing(range(rank, len(plan.parts), world))
    todo = [Job(opening, plan, target.parts, number, found.part(plan.parts[number]), workers) for number in missing]
    made = 0
    for part in _made(todo, predictor, spread, progress):
        made += part.images
        for name, problem in part.bad:
            progress.say(f"left out: {name}: {problem}")
    return target.end(made)


def _made(jobs: Sequence[Job], predictor: Predictor, engine: Engine | None, progress: Progress) -> Iterator[Made]:
    with progress.bar("predicting", sum(len(job.images) for job in jobs), "img") as bar:
        if engine is None:
            yield from (make(predictor, job, bar) for job in jobs)
            return
        for job, made in zip(jobs, engine.map(make_elsewhere, jobs), strict=True):
            bar.advance(len(job.images))
            yield made


def _rank_and_world() -> tuple[int, int]:
    """Which of how many processes this is, as torchrun says."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _heatmaps(folder: Path, chosen: Sequence[str] | None, classes: Sequence[str]) -> dict[str, Any]:
    """What a plan says about pictures of class maps."""
    for name in chosen or ():
        if name not in classes:
            raise unknown_name("class", name, classes)
    return {"folder": str(folder.absolute()), "classes": None if chosen is None else list(chosen)}
