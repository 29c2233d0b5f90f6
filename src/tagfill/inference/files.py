"""Predictions for any number of images, written to one file.

The images are divided into parts. Each part is a Parquet file of its own until all parts exist, so a rerun makes only
the missing ones, and memory holds one part at a time:

    OUT.parts/plan.json, 000000.parquet, …   while the work is under way
    OUT, OUT.json, OUT.bad.tsv               afterwards; the last one only if some images could not be decoded

`OUT.json` is written last: a file that has it is complete. A file that was made with another model, other images or
other settings is left untouched.

Several processes can work on the same file, each on its own parts:

- processes started by torchrun (`RANK` and `WORLD_SIZE`): process r of n makes parts r, r+n, r+2n, …, and the last one
  to finish joins them;
- tasks of an engine (`tagfill.engines`), one part each: processes of this machine, or Ray on a cluster.

`tagfill.inference.prediction_parts` has the parts, the manifest and the formats.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.engines import create_engine
from tagfill.errors import TagfillError, unknown_name
from tagfill.images import overlay_class_map, thumbnail
from tagfill.inference.images import ImageList, Images, find_images
from tagfill.inference.pipeline import (
    BATCH_SIZE,
    Threshold,
    check_top_k,
    decide,
    measure_given_tags,
    resolve_thresholds,
    saved_thresholds,
    score_images,
)
from tagfill.inference.prediction_parts import (
    PLAN,
    WRITERS,
    BadImage,
    HeatmapOptions,
    PartsFolder,
    PredictionFile,
    PredictionManifest,
    prediction_table,
)
from tagfill.inference.predictors import ModelPath, Predictor, model_path, open_predictor
from tagfill.inference.tagged import GivenTags
from tagfill.io import atomic_write
from tagfill.progress import NOTEBOOK, SILENT, Bar, Progress

_HEATMAP_SIDE = 640  # pixels, the longer side


def predict_to_file(
    run: ModelPath,
    images: Images | Iterable[Images],
    out: str | os.PathLike[str],
    *,
    split: str | None = None,
    threshold: Threshold = None,
    top_k: int | None = None,
    raw_scores: bool = False,
    ignore_tags: bool = False,
    spreadsheet: bool = False,
    heatmaps: str | os.PathLike[str] | None = None,
    classes: Sequence[str] | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    threads: int | None = None,
    device: str = "auto",
    engine: str | None = None,
    jobs: int | None = None,
    ray_address: str | None = None,
    force: bool = False,
    progress: Progress = NOTEBOOK,
) -> PredictionFile:
    """Predict labels for images and write them to a file; resume a file that is incomplete.

    Args:
        run: a run or its folder, a model folder, or an ONNX file.
        images: files, folders, patterns, shards, URLs or datasets; see `find_images`.
        out: a file that ends in .parquet, .csv or .jsonl.
        split: of datasets; by default all of their images.
        threshold: for all classes, or by class name, instead of the model's own.
        top_k: keep only this number of labels per image, the most probable ones.
        raw_scores: write the sigmoid of the model's logits instead of calibrated probabilities.
        ignore_tags: predict images of datasets from their pixels alone; by default they keep the labels that are known,
            and the others get the probability that they were missed (see `predict`).
        spreadsheet: in a CSV file, write an apostrophe before names that a spreadsheet would run as formulas.
        heatmaps: a folder for pictures of class maps, drawn for the labels that are present.
        classes: draw these classes instead, whether present or not.
        batch_size: images per forward pass.
        workers: threads that decode images.
        threads: threads of the network; by default one per core.
        device: `cpu`, `cuda`, `mps` or `auto`.
        engine: `joblib` for several processes on this machine, `ray` for a cluster whose machines all see the same
            files; by default this process does everything.
        jobs: processes of the engine on this machine; by default one per core.
        ray_address: address of a running Ray cluster.
        force: overwrite an existing file.
        progress: receives the number of images done, and a line for each image that cannot be decoded.

    Raises:
        TagfillError: if the file was made with another model, other images or other settings.
    """
    out = Path(out)
    if out.suffix not in WRITERS:
        raise TagfillError(f"{out} ends in none of {', '.join(WRITERS)}; its ending decides the format.")
    if spreadsheet and out.suffix != ".csv":
        raise TagfillError(f"--spreadsheet is for CSV files, and {out} is none; leave it out.")
    check_top_k(top_k)
    model = (str(model_path(run).absolute()), device, threads)  # absolute: a worker may have another working folder
    predictor = open_predictor(model[0], device=device, threads=threads)
    if heatmaps is not None:
        predictor.check_maps()
    elif classes is not None:
        raise TagfillError("Classes are chosen for pictures of class maps; give a folder for --heatmaps too.")
    drawn = None if classes is None else tuple(classes)
    for name in drawn or ():
        if name not in predictor.classes:
            raise unknown_name("class", name, predictor.classes)
    found = find_images(images, split=split, progress=progress)
    tags = None if raw_scores or ignore_tags else GivenTags.read(found, predictor.classes)
    manifest = PredictionManifest(
        model=predictor.identity,
        images=found.identity(),
        count=len(found),
        classes=predictor.classes,
        thresholds=resolve_thresholds(predictor.classes, saved_thresholds(predictor, raw_scores), threshold),
        top_k=top_k,
        raw_scores=raw_scores,
        spreadsheet=spreadsheet,
        heatmaps=None if heatmaps is None else HeatmapOptions(folder=str(Path(heatmaps).absolute()), classes=drawn),
        batch_size=batch_size,
        tags=None if tags is None else tags.summary(),
    )
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))  # set by torchrun
    if engine is not None and world > 1:
        raise TagfillError("Several processes share the work already (WORLD_SIZE); leave out --engine.")
    pool = None if engine is None else create_engine(engine, workers=jobs, address=ray_address)
    parts = PartsFolder(out, manifest)
    done = parts.start(force, world)
    if done is not None:
        return done
    if tags is not None:
        tags = measure_given_tags(tags, predictor, found, batch_size=batch_size, workers=workers, progress=progress)
        parts = replace(parts, manifest=manifest.model_copy(update={"tags": tags.summary()}))
        progress.say(str(tags.summary()))
    ranges, made = manifest.parts, 0
    todo = [
        (number, found.subset(ranges[number]), None if tags is None else tags.subset(ranges[number]))
        for number in parts.missing(range(rank, len(ranges), world))
    ]
    with progress.bar("predicting", sum(len(part) for _, part, _ in todo), "img") as bar:
        results: Iterator[tuple[int, list[BadImage]]]
        if pool is None:
            results = ((len(part[1]), _make_part(predictor, parts, *part, workers, bar)) for part in todo)
        else:
            needs = [Path(model[0]), parts.folder / PLAN, *found.shared_files()]
            sent = replace(parts, out=out.absolute())
            results = pool.map(_make_part_in_worker, [(sent, *part, workers, model) for part in todo], needs=needs)
        for (_, part, _), (count, bad) in zip(todo, results, strict=True):
            made += count
            if pool is not None:
                bar.advance(len(part))
            for name, problem in bad:
                progress.say(f"left out: {name}: {problem}")
    return parts.finish(made)


def _make_part_in_worker(
    task: tuple[PartsFolder, int, ImageList, GivenTags | None, int, tuple[str, str, int | None]],
) -> tuple[int, list[BadImage]]:
    """Make a part in a process of an engine, which keeps the model open for its next part."""
    parts, number, images, tags, workers, model = task
    if not parts.missing([number]):  # made by a process that died before it could report
        return 0, []
    with SILENT.bar("", None) as bar:
        return len(images), _make_part(_open_once(*model), parts, number, images, tags, workers, bar)


@functools.lru_cache(maxsize=1)
def _open_once(path: str, device: str, threads: int | None) -> Predictor:
    return open_predictor(path, device=device, threads=threads)


def _make_part(
    predictor: Predictor,
    parts: PartsFolder,
    number: int,
    images: ImageList,
    tags: GivenTags | None,
    workers: int,
    bar: Bar,
) -> list[BadImage]:
    """Score the images of a part, draw their heatmaps, then write the part; return its bad images."""
    manifest, tables, bad = parts.manifest, list[pa.Table](), list[BadImage]()
    heatmaps, calibration = manifest.heatmaps, None if manifest.raw_scores else predictor.calibration
    for batch, outputs in score_images(
        predictor, images, batch_size=manifest.batch_size, workers=workers, maps=heatmaps is not None
    ):
        numbers = batch.index.tolist()
        decided = functools.partial(decide, tags=tags, numbers=batch.index)
        decisions = decided(outputs.logits, manifest.thresholds, manifest.top_k, calibration)
        tables.append(prediction_table([images.name(image) for image in numbers], decisions, manifest.classes))
        if heatmaps is not None and outputs.maps is not None:
            present = decided(outputs.logits, manifest.thresholds, calibration=calibration).present
            for row, image in enumerate(numbers):
                _draw_heatmaps(heatmaps, manifest.classes, images, image, outputs.maps[row], present[row])
        bad.extend((images.name(image), error.problem) for image, error in batch.bad)
        bar.advance(len(batch.index) + len(batch.bad))
    parts.write(number, pa.concat_tables(tables).unify_dictionaries().combine_chunks(), bad)
    return bad


# Pictures of class maps: FOLDER/<image>/<class>.jpg


def _draw_heatmaps(
    options: HeatmapOptions,
    classes: tuple[str, ...],
    images: ImageList,
    number: int,
    maps: NDArray[np.floating],
    present: NDArray[np.bool_],
) -> None:
    """Draw class maps (L×H×W) of one image over the image as it was taken, not over the network's input.

    The evaluation view is the whole image, so a map covers all of it.
    """
    wanted = np.flatnonzero(present).tolist()
    if options.classes is not None:
        wanted = [classes.index(name) for name in options.classes]
    if not wanted:
        return
    image = thumbnail(*images.locate(number), _HEATMAP_SIDE)
    for label in wanted:
        path = Path(options.folder) / picture_path(images.name(number), classes[label])
        with atomic_write(path, sync=False) as file:
            overlay_class_map(image, maps[label]).save(file, format="JPEG", quality=90)


def picture_path(image: str, label: str) -> PurePosixPath:
    """The path of a picture below the folder of pictures; no name leads out of that folder, and none is too long.

    A name that cannot be the name of a file everywhere is changed and gets a part of its hash, so that the pictures of
    different images and classes never have the same path.

    >>> picture_path("photos/1.jpg", "cat").as_posix()
    'photos/1.jpg/cat.jpg'
    >>> picture_path("../photos/1.jpg", "cat/dog").as_posix()
    'photos/1.jpg-42238f7ae6/cat_dog-c9102ea638.jpg'
    """
    parts = re.split(r"[/\\]+", image)
    kept = [_safe_name(part) for part in parts if part not in ("", ".", "..")] or ["_"]
    if "/".join(part for part in parts if part not in ("", ".", "..")) != image.removeprefix("/"):
        kept[-1] = _safe_name(kept[-1], image)
    return PurePosixPath(*kept, f"{_safe_name(label)}.jpg")


_NAME_BYTES = 200  # file systems allow 255, and temporary names are longer


def _safe_name(text: str, whole: str | None = None) -> str:
    """A file name; with a part of the hash of `whole`, by default of the text, if that is not the text itself."""
    safe = re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|\ud800-\udfff]', "_", text).strip(". ") or "_"
    short = safe.encode()[:_NAME_BYTES].decode(errors="ignore")
    if short == text and whole is None:
        return text
    digest = hashlib.sha256((whole or text).encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{short}-{digest}"
