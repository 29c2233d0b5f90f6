"""Filling in: from photos with a few tags to photos with all tags that can be told, in one call.

    read       the table of tags, and the photos that it does not name
    features   a frozen network looks at each photo once
    train      the method `auto` (or another) on what is known
    score      each tagged photo by models that were not trained on it, all others by the trained model; combined with
               evidence of other taggers, or else with the ImageNet prior if it is installed
    choose     tags to add, so that the expected share of right ones meets the target
    write      filled.csv, to-review.csv, report.html, the dataset, the model and filled.json

Everything is below one folder:

    filled.csv      each photo with its tags, what was added, and the probability of each added tag
    to-review.csv   what is uncertain, for `tagfill review`
    report.html     what was found, how far it can be trusted, what to do next
    filled.json     the same numbers for programs, and the settings, for the next run
    known/          a dataset of what is known: given tags, and decisions of reviews
    dataset/        the same with the added tags, whose rows have the source `fill`
    model/          for `tagfill predict`, `serve` and `export`
    work/           features, runs and scores; it may be deleted, and is then made again when needed

Features, training and scoring are stored in `work/` under a key made of what is known and of the settings. A second
call finds what an interrupted one left, and after a review only what depends on the labels is computed again. Tags that
were added are guesses: they are never trained on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagfill.curation.complete import Draws
from tagfill.curation.crossfit import TRAIN, cross_fit
from tagfill.curation.decisions import SOURCE as REVIEW
from tagfill.curation.estimates import LabelEstimates, summarize
from tagfill.curation.review import AUDIT, FOLDER, apply_log
from tagfill.curation.submissions import apply_submissions, submitted_rows
from tagfill.curation.suggest import Doubts, describe_weights, pair_table
from tagfill.curation.suggestions import WRONG
from tagfill.data import FeatureCache
from tagfill.data.extract import VIEWS, count_missing_views
from tagfill.data.extract import features as compute_features
from tagfill.data.manifest import Manifest
from tagfill.dataset import Dataset
from tagfill.dataset.description import FILE as DATASET_FILE
from tagfill.errors import TagfillError
from tagfill.evidence import copy_evidence, evidence_path, list_evidence
from tagfill.evidence.models import prior_is_installed, score_with_prior
from tagfill.filling.candidates import CANDIDATES, DOUBTS, SCORED, Candidates, Scored
from tagfill.filling.outputs import check_formats
from tagfill.filling.result import Fill
from tagfill.filling.source import absolute_options, read_source
from tagfill.filling.summary import (
    DATASET,
    FILLED,
    KNOWN,
    MODEL,
    REPORT,
    SOURCE,
    SUMMARY_FILE,
    TO_REVIEW,
    WORK,
    FillSummary,
    Keep,
    PastFill,
    Settings,
    absolute_path,
)
from tagfill.filling.table import TableLayout
from tagfill.filling.timing import Phase, rounded_duration, seconds_per_view
from tagfill.filling.writing import ResultWriter
from tagfill.images import input_size
from tagfill.inference.missing_tags import ALL_ANNOTATED
from tagfill.io import atomic_write, exclusive_lock, sha256, sha256_of_strings, write_json
from tagfill.models import choose_device, create_backbone
from tagfill.progress import NOTEBOOK, Progress
from tagfill.training import Recipe, Run, build_recipe, check_start, resume, start
from tagfill.training.evaluation import LoadedModel

UNTAGGED = "untagged"  # split of photos about which nothing is known; they are scored and not trained on
MOST_DOUBTED = 500
_DECIDE_SCORES = {"method", "backbone", "pretrained", "image_size", "epochs", "folds", "seed"}
_IMAGE_SIZE = 320  # of the default backbone, which was trained at 224; objects are small on most photos
_VIEWS = "eval"  # of each photo: discriminants gain nothing from crops and mirror images
_HEAD_COST = 0.03  # time of training on a photo once, relative to that of the network for one view of it
_PAIR_AND_TIME = ["image", "label", "time"]


def fill(
    source: Any,
    *,
    photos: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "filled",
    keep: str = "precision=0.9",
    formats: Sequence[str] = (),
    spreadsheet: bool = False,
    source_format: str | None = None,
    options: Mapping[str, Any] | None = None,
    method: str = "auto",
    backbone: str = "tf_efficientnet_lite0",
    pretrained: bool | str = "bundled",
    image_size: int | str | None = None,
    features: str | os.PathLike[str] | None = None,
    epochs: int = 10,
    folds: int = 5,
    seed: int = 0,
    evidence: bool = True,
    device: str = "auto",
    jobs: int | None = None,
    workers: int = 0,
    progress: Progress = NOTEBOOK,
) -> Fill:
    """Fill in the tags that photos lack.

    Call it again with the same folder after a review, with more tags or with more photos: decisions are used, only what
    changed is computed again, and the result says what got better.

    Args:
        source: a table of tags (a CSV, TSV or Parquet file, an Arrow table, a data frame, a mapping of columns), a
            dataset or its folder, a file or folder in another format (see `source_format`), or the folder of an earlier
            result: then the source and all settings that are left at their defaults are those of the earlier call.
        photos: where the photos are; by default the folder of the table. Photos that the table does not name join.
        out: folder of the result.
        keep: which tags to add: `precision=0.9` adds as many as possible of which 90 % are expected to be right,
            `probability=0.8` adds those that are at least that probable.
        formats: also write the result in these formats, such as `coco` or `label-studio`.
        spreadsheet: in CSV files, write an apostrophe before names that a spreadsheet would run as formulas.
        source_format: format of the source, if it is neither a table of tags nor a dataset; see `tagfill.formats`.
        options: of that format, such as `{"separator": ";"}`.
        method: how to learn from the tags.
        backbone: timm's name of the network.
        pretrained: its weights.
        image_size: side of the square input; by default 320 for the default backbone, which finds small objects that it
            misses at the size of its own training (224), and otherwise that of the backbone.
        features: folder of a feature cache to use, which gets the photos that it does not have; by default one below
            `work`.
        epochs: of training.
        folds: models that are trained so that no photo is scored by a model that knows its tags.
        seed: of all random draws.
        evidence: combine the model's scores with evidence of the dataset; if it has none, with what the bundled
            ImageNet classifier sees in the photos and the names of the tags say about it (`tagfill evidence prior`).
            How much it counts is learned from the known tags.
        device: of the networks: `cpu`, `cuda`, `mps`, or `auto`.
        jobs: processes that train; one per core by default.
        workers: processes that decode photos.
        progress: shows the phases.

    Example:
        >>> result = tagfill.fill("tags.csv", photos="photos", out="filled")  # doctest: +SKIP
        >>> result.table.to_pandas()  # doctest: +SKIP
        >>> result.review()  # doctest: +SKIP
    """
    settings = Settings(
        source=absolute_path(source) if isinstance(source, str | os.PathLike) else None,
        source_format=source_format,
        options=absolute_options(source_format, options or {}),
        photos=None if photos is None else absolute_path(photos),
        method=method,
        backbone=backbone,
        pretrained=pretrained if pretrained in (True, False, "bundled") else absolute_path(str(pretrained)),
        image_size=image_size,
        features=None if features is None else absolute_path(features),
        epochs=epochs,
        folds=folds,
        seed=seed,
        keep=keep,
        formats=tuple(formats),
        spreadsheet=spreadsheet,
        evidence=evidence,
    )
    if isinstance(source, str | os.PathLike) and (Path(source) / SUMMARY_FILE).is_file():
        out, settings = source, Fill.open(source).summary.settings.changed(settings)
        if settings.source is None:
            raise TagfillError(f"{source} was filled from a table in memory; give the table again.")
    Keep.parse(settings.keep)
    check_formats(settings.formats)
    folder = Path(out)
    check_start(_recipe(settings, folder), out=None, device=device)
    base, layout = read_source(settings.source or source, settings, progress)
    _check_folder(folder, base)
    with exclusive_lock(folder, "is filling in tags", choose="--out"):
        found = _find_evidence(settings.source or source, folder) if settings.evidence else None
        return _Filling(folder, base, layout, settings, found, device, jobs, workers, progress).run()


@dataclass
class _Filling:
    """One call of `fill`."""

    folder: Path
    base: Dataset
    layout: TableLayout
    settings: Settings
    evidence: Dataset | None
    device: str
    jobs: int | None
    workers: int
    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> Fill:
        """Go through the phases."""
        previous, added_before = FillSummary.read(self.folder), self._added_before()
        decisions = self._decisions()
        known = self._known(decisions)
        data = _set_apart_untagged(known)
        key = self._key(data)
        work = self.folder / WORK / key
        made_from = (key, self.settings, self.layout)
        if previous is not None and (previous.key, previous.settings, previous.layout) == made_from and self._whole():
            self.progress.say("Nothing has changed since the last run.")
            return Fill.open(self.folder)
        data = data.save(work / "data")
        if self.evidence is not None:
            copy_evidence(self.evidence, work / "data")
        self._say_duration(data, work)
        cache = self._features(data)
        run = self._train(data, cache, work)
        scored = self._score(data, cache, run, work)
        past = [] if previous is None else list(previous.past)
        if previous is not None and previous.key != key:
            past.append(PastFill.of(previous, decisions, added_before))
        with self._phase("writing", "Writing the result"):
            writer = ResultWriter(self.folder, key, self.settings, self.layout, known, decisions)
            writer.write(run, scored, past, self.seconds)
        for other in (self.folder / WORK).iterdir():
            if other.is_dir() and other.name not in (key, self._features_folder().name):
                shutil.rmtree(other)
        return Fill.open(self.folder)

    def _whole(self) -> bool:
        """Whether all results are there."""
        expected = [FILLED, TO_REVIEW, REPORT, MODEL, f"{DATASET}/{DATASET_FILE}"]
        return all((self.folder / name).exists() for name in expected)

    def _decisions(self) -> pa.Table:
        """Rows of reviews, audits and annotations in Label Studio of the earlier result."""
        found = [self.base.rows().slice(0, 0)]
        for name, source in ((KNOWN, REVIEW), (DATASET, AUDIT)):
            path = self.folder / name
            if (path / DATASET_FILE).is_file():
                apply_log(Dataset.open(path))
                apply_submissions(path, progress=self.progress)
                rows = Dataset.open(path).rows()
                found.append(rows.filter(pc.fill_null(pc.equal(rows["source"], source), False)))
                found.append(submitted_rows(path, rows))
        rows = pa.concat_tables(found)
        if not rows.num_rows:
            return rows
        of_photos = pc.is_in(rows["image"], value_set=pa.array(self.base.names(), pa.string()))
        of_classes = pc.is_in(rows["label"], value_set=pa.array(self.base.classes, pa.string()))
        kept = rows.filter(pc.and_(of_photos, of_classes))
        if lost := rows.num_rows - kept.num_rows:
            self.progress.say(f"Warning: {lost:,} decisions are about photos or tags that are no longer there.")
        rows = self.base.rows()
        about_same = rows.filter(pc.is_in(rows["image"], value_set=kept["image"].combine_chunks()))
        given = {tuple(row.values()) for row in about_same.select(_PAIR_AND_TIME).to_pylist()}
        new = [tuple(row.values()) not in given for row in kept.select(_PAIR_AND_TIME).to_pylist()]
        return kept.filter(pa.array(new, pa.bool_()))

    def _known(self, decisions: pa.Table) -> Dataset:
        """What is known: given tags and decisions, with photos that a review completed in the split they moved to."""
        splits = self.base.split_of_images()
        path = self.folder / KNOWN
        if (path / DATASET_FILE).is_file():
            before = Dataset.open(path)
            drawn = {name for draw in Draws.read(path / FOLDER).draws for name in draw.images}
            moved = dict(zip(before.names(), before.split_of_images(), strict=True))
            for row, name in enumerate(self.base.names()):
                if name in drawn and name in moved:
                    splits[row] = moved[name]
        rows = pa.concat_tables([self.base.rows(), decisions])
        return self.base.with_splits(splits).replace(annotations=rows, folder=None)

    def _key(self, data: Dataset) -> str:
        """A name for what is known and for the settings that decide the scores."""
        settings = self.settings.model_dump(include=_DECIDE_SCORES) | {"image_size": _image_size(self.settings)}
        if self.evidence is not None:
            settings |= {name: sha256(evidence_path(self.evidence, name)) for name in list_evidence(self.evidence)}
        settings |= {"prior": True} if self._uses_prior() else {}
        identity = [f"{name}={value}" for name, value in {**data.identities, **settings}.items()]
        return sha256_of_strings(identity)[:12]

    def _uses_prior(self) -> bool:
        """Whether the ImageNet prior takes the place of evidence."""
        one = self.settings
        return (
            one.evidence
            and self.evidence is None
            and one.pretrained == Settings().pretrained
            and prior_is_installed(one.backbone)
        )

    def _say_duration(self, data: Dataset, work: Path) -> None:
        """Say how long it will take, from the time that the network needs for a few photos."""
        if (work / SCORED).is_file():
            return
        one = self.settings
        given = _image_size(one)
        size = None if given is None else input_size(given)
        backbone = create_backbone(one.backbone, pretrained=one.pretrained, image_size=size, seed=one.seed)
        per_view = seconds_per_view(data, backbone, choose_device(self.device))
        views, already_there = count_missing_views(
            data, backbone, self._features_folder(), views=_views(one), seed=one.seed
        )
        if views and already_there:
            self.progress.say(f"{already_there:,} of {len(data):,} photos were there already.")
        looks = views * per_view
        models = 1 + one.folds / (self.jobs or os.cpu_count() or 1)
        heads = 10 + _HEAD_COST * per_view * models * len(data.split(TRAIN)) * one.epochs
        parts = f": {rounded_duration(looks)} to look at the photos, {rounded_duration(heads)}" if looks >= 1 else ""
        self.progress.say(
            f"This takes about {rounded_duration(looks + heads)}{parts} to train and to score. Interrupted, it goes on "
            "when it is started again."
        )

    def _features_folder(self) -> Path:
        """The cache, named after the network, so that another one gets its own."""
        one = self.settings
        if one.features is not None:
            return Path(one.features)
        network = sha256_of_strings(str(value) for value in (one.backbone, one.pretrained, _image_size(one), one.seed))
        return self.folder / WORK / f"features-{network[:8]}"

    def _features(self, data: Dataset) -> FeatureCache:
        with self._phase("features", f"Features of {len(data):,} photos") as progress:
            return compute_features(
                data,
                backbone=self.settings.backbone,
                pretrained=self.settings.pretrained,
                image_size=_image_size(self.settings),
                views=_views(self.settings),
                out=self._features_folder(),
                seed=self.settings.seed,
                workers=self.workers,
                max_bad_images=0.1,
                device=self.device,
                progress=progress,
            )

    def _train(self, data: Dataset, cache: FeatureCache, work: Path) -> Run:
        recipe = _recipe(self.settings, work / "data", cache.folder)
        folder = work / "run"
        with self._phase("training", f"Training on {len(data.split(TRAIN)):,} tagged photos") as progress:
            if Run(folder).begun:
                return resume(folder, device=self.device, progress=progress)
            return start(data, recipe, out=folder, device=self.device, force=True, progress=progress)

    def _score(self, data: Dataset, cache: FeatureCache, run: Run, work: Path) -> Scored:
        if (work / SCORED).is_file():
            found = Scored.model_validate_json((work / SCORED).read_bytes())
            if found.precision:  # files of earlier versions do not have it
                return found
        with self._phase("scoring", f"Scoring {len(data):,} photos") as progress:
            if self._uses_prior():
                score_with_prior(data, features=cache.folder, force=True)
            candidates, doubts = Candidates(data), Doubts(data)
            estimates: list[LabelEstimates] = []
            lost_all_tags = 0.0
            scored = cross_fit(
                run.folder,
                data,
                TRAIN,
                folds=min(self.settings.folds, len(data.split(TRAIN))),
                out=work / "folds",
                features=cache.folder,
                jobs=self.jobs,
                workers=self.workers,
                device=self.device,
                labels=self.base.labels(),
                progress=progress,
            )
            combination, of_both = None, None
            for images in scored:
                candidates.add(images.rows, images.logits, images.estimates)
                candidates.sample(images.by_model.logits, images.by_model.estimates)
                doubts.add(images)
                lost_all_tags += images.estimates.expected_untagged(images.logits)
                if not estimates or images.by_model.estimates is not estimates[-1]:
                    estimates.append(images.by_model.estimates)
                if images.combination is not None and combination is None:
                    combination, of_both = images.combination, images.estimates
                    progress.say(describe_weights(images.weights))
            model = LoadedModel.open(run, data, features=cache.folder, workers=self.workers, device=self.device)
            measured = model.model.calibration  # on photos with complete labels, if there are any
            own = estimates[0] if measured is None else replace(estimates[0], calibration=measured)
            annotated_share = min(1.0, lost_all_tags / max(len(data.splits.get(UNTAGGED, ())), 1))
            annotated_share = 1.0 if annotated_share >= ALL_ANNOTATED else annotated_share
            own = replace(own, annotated_share=annotated_share)
            used = own if of_both is None else replace(of_both, annotated_share=annotated_share)
            for split, rows in data.splits.items():
                if split == TRAIN:
                    continue
                for batch, prediction in model.predict(split):
                    at, logits = rows[batch.index.numpy()], prediction.logits.float().numpy()
                    candidates.add(at, logits if combination is None else combination(at, logits), used)
            doubted, errors = doubts.result(MOST_DOUBTED, None)
            result = Scored(
                expected=candidates.expected.tolist(),
                estimates=summarize(estimates),
                calibration=own.for_new_images,
                precision=candidates.precision().tolist(),
                weights=combination.shares if combination is not None else {},
                val_mAP=run.best.get("val_mAP"),
                doubts=str(errors),
                doubted=len(errors),
            )
            with atomic_write(work / DOUBTS) as file:
                pq.write_table(pair_table(data, WRONG, doubted), file, compression="zstd")
            with atomic_write(work / CANDIDATES) as file:
                pq.write_table(candidates.table(), file, compression="zstd")
            write_json(work / SCORED, result.model_dump(mode="json"))
            return result

    def _added_before(self) -> set[tuple[str, str]]:
        """Pairs that the earlier result had added."""
        path = self.folder / DATASET
        if not (path / DATASET_FILE).is_file():
            return set()
        rows = Dataset.open(path).rows()
        mine = rows.filter(pc.fill_null(pc.equal(rows["source"], SOURCE), False))
        return set(zip(mine["image"].to_pylist(), mine["label"].to_pylist(), strict=True))

    def _phase(self, name: str, title: str) -> Phase:
        return Phase(self.progress, self.seconds, name, title)


def _find_evidence(source: Any, folder: Path) -> Dataset | None:
    """A dataset that has evidence about the photos: the source, or what is known in an earlier result."""
    places = [source, folder / KNOWN]
    for place in places:
        if isinstance(place, str | os.PathLike) and (Path(place) / DATASET_FILE).is_file():
            place = Dataset.open(place)
        if isinstance(place, Dataset) and list_evidence(place):
            return place
    return None


def _recipe(settings: Settings, data: Path, features: Path | None = None) -> Recipe:
    """How the model is trained."""
    content = {
        "dataset": str(data.absolute()),
        "method": settings.method,
        "backbone": settings.backbone,
        "pretrained": settings.pretrained,
        "image_size": _image_size(settings),
        "head": "cam",
        "seed": settings.seed,
    }
    return build_recipe(content, features=features, epochs=settings.epochs)


def _image_size(settings: Settings) -> int | str | None:
    """Side of the square input; None for the backbone's own.

    >>> _image_size(Settings()), _image_size(Settings(backbone="resnet50")), _image_size(Settings(image_size=224))
    (320, None, 224)
    """
    if settings.image_size is not None:
        return settings.image_size
    if settings.features is not None and (Path(settings.features) / "manifest.json").is_file():
        return "x".join(str(side) for side in Manifest.read(Path(settings.features)).preprocessing.size)
    return _IMAGE_SIZE if settings.backbone == Settings().backbone else None


def _views(settings: Settings) -> str:
    """Views of each photo: methods other than `auto` may need more than one."""
    return _VIEWS if settings.method == Settings().method else VIEWS


def _set_apart_untagged(known: Dataset) -> Dataset:
    """The data to train on and to score: photos about which nothing is known are in a split of their own."""
    splits = known.split_of_images()
    untouched = known.labels().unannotated()
    splits[untouched[splits[untouched] == TRAIN]] = UNTAGGED
    return known.with_splits(splits)


def _check_folder(folder: Path, base: Dataset) -> None:
    """Refuse a folder with something else in it."""
    if folder.exists() and not folder.is_dir():
        raise TagfillError(f"{folder} is a file; choose another --out.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / WORK).is_dir() and not (folder / SUMMARY_FILE).is_file():
        raise TagfillError(f"{folder} is not empty and holds no earlier result of fill; choose another --out.")
    if (folder / KNOWN / DATASET_FILE).is_file():
        before = Dataset.open(folder / KNOWN)
        if not set(before.names()) & set(base.names()):
            raise TagfillError(f"{folder} holds the result for other photos; choose another --out.")
