"""How good the method `auto` is: against single methods and complete labels, on photos and scenes, by protocol.

Writes benchmarks/results/auto.json and docs/benchmarks/auto.md. All methods use defaults on the same cached features,
keep the last epoch (there is no validation split), and are tested with the same boost at inference as `auto`. The
labels kept, the order of images and the initial weights of a seed are the same for all, so that gains are paired.

    python benchmarks/auto/run.py --voc VOC2012.tar --coco-labels labels.csv.gz --coco-photos train2017
    python benchmarks/auto/run.py                 scenes only, one seed; printed and not written
    python benchmarks/auto/run.py … --finished    write what is measured so far

COCO labels are a CSV file `image,labels` with labels joined by `|`. An interrupted benchmark continues where it
stopped.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record("auto", ("training", "data", "models", "memory", "methods", "losses", "scenes", "protocols"))
CEILING, CEILING_AUTO, FLOOR = "complete labels", "complete labels, auto", "an"
ONE, FORTY, RANDOM = "one tag per image", "40% of the tags", "10% of all labels"
SINGLES = {ONE: ("an", "em", "ll-r"), FORTY: ("an", "em", "ll-r"), RANDOM: ("an", "ignore")}  # others are in `auto`
STEPS = (("wan", "em", "ll-r"), ("wan", "lda", "lda-soft"), ("wan", "lda", "lda-soft", "lda-cells"))  # of `auto` so far
SCENES = {"train": 600, "val": 20, "test": 400}
COCO = {"coco": (17, 2900, 1000), "coco-2": (23, 3000, 2000)}  # seed, training and test photos; no photo is in both
EPOCHS, BOOST = 10, 5.0


@dataclass(frozen=True)
class Job:
    """All methods with one source, protocol and seed."""

    work: Path
    source: str
    protocol: str
    seed: int

    @property
    def result(self) -> Path:
        """Where its scores are kept."""
        name = f"{self.source}-{self.protocol.replace(' ', '-').replace('%', '')}-s{self.seed}"
        return self.work / "auto-scores" / f"{name}.json"

    @property
    def folder(self) -> Path:
        """Dataset and features of its source."""
        return self.work / self.source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--voc", type=Path, help="PASCAL VOC 2012, a folder or a tar archive")
    parser.add_argument("--coco-labels", type=Path)
    parser.add_argument("--coco-photos", type=Path)
    parser.add_argument("--coco", nargs="+", default=list(COCO), choices=COCO, help="which photos of COCO")
    parser.add_argument("--work", type=Path, default=Path("runs/auto"), help="datasets, features and scores")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes that extract features")
    parser.add_argument("--protocols", nargs="+", default=[ONE, FORTY, RANDOM], help="which labels are kept")
    parser.add_argument("--finished", action="store_true", help="write the page from the results there are")
    options = parser.parse_args()
    work, photos = options.work.absolute(), options.voc is not None or options.coco_labels is not None
    sources = ["scenes"]
    prepare_scenes(work / "scenes")
    if options.coco_labels is not None:
        for name in options.coco:
            prepare_coco(work, name, options.coco_labels, options.coco_photos, options.jobs)
            sources.append(name)
    if options.voc is not None:
        prepare_voc(work / "voc", options.voc, options.jobs)
        sources.append("voc")
    seeds = options.seeds if photos else 1
    jobs = [Job(work, *words) for words in itertools.product(sources, options.protocols, range(seeds))]
    if not options.finished:
        for number, job in enumerate(sorted(jobs, key=lambda job: (job.protocol != ONE, job.seed)), start=1):
            scores = measure(job)
            closed = (scores["auto"] - scores[FLOOR]) / (scores[CEILING] - scores[FLOOR])
            say(f"{number} of {len(jobs)}: {job.source}, {job.protocol}, seed {job.seed}: auto closes {closed:.0%}")
    found = collect([job for job in jobs if job.result.exists()])
    results = {
        **RECORD.begin(),
        "sizes": {source: sizes(work / source) for source in found},
        "epochs": EPOCHS,
        "boost": BOOST,
        "scores": found,
    }
    if RECORD.results.exists():  # what was measured before and not again
        before = json.loads(RECORD.results.read_text(encoding="utf-8"))
        results["earlier"] = before.get("earlier", {name: before[name] for name in ("commit", "sizes", "scores")})
    if not photos:
        print(json.dumps(results, indent=2))
        return
    from page import page

    RECORD.write(results, page(results))


def collect(jobs: list[Job]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Test mAP in percent, and seconds of `auto`, by source, protocol and entry, a number per seed."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for job in jobs:
        for name, score in json.loads(job.result.read_text()).items():
            found.setdefault(job.source, {}).setdefault(job.protocol, {}).setdefault(name, []).append(score)
    return found


def sizes(folder: Path) -> dict[str, Any]:
    """Images of a source, and its labels per training image."""
    import tagfill

    data = tagfill.Dataset.open(folder / "complete")
    labels = data.labels("train")
    return {
        "classes": len(data.classes),
        "train": len(data.split("train")),
        "test": len(data.split("test")),
        "labels": float(labels.positives.sum() / labels.shape[0]),
    }


def prepare_scenes(folder: Path) -> None:
    """Rendered scenes with their features."""
    import tagfill

    if not (folder / "complete" / "dataset.yaml").exists():
        tagfill.scenes.make(folder / "complete", **SCENES)
    tagfill.features(folder / "complete", views="eval,flip", out=folder / "features")


def prepare_voc(folder: Path, source: Path, jobs: int) -> None:
    """PASCAL VOC 2012, divided as published, with its features."""
    import tagfill

    if not (folder / "complete" / "dataset.yaml").exists():
        photos = tagfill.formats.voc.read(source, extract_to=folder / "photos")
        photos.save(folder / "imported")
        tagfill.protocols.k_positives(photos, num_pos=-1, num_neg=-1, seed=1200).save(folder / "complete")
    tagfill.features(folder / "complete", views="eval,flip", out=folder / "features", engine="joblib", jobs=jobs)


def prepare_coco(work: Path, name: str, labels: Path, photos: Path, jobs: int) -> None:
    """Some photos of COCO with all of their labels, and their features; those of `coco-2` are not in `coco`."""
    import tagfill

    folder = work / name
    if not (folder / "complete" / "dataset.yaml").exists():
        with gzip.open(labels, "rt", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        classes = sorted({label for row in rows for label in row["labels"].split("|")})
        for other, (seed, train, test) in COCO.items():
            chosen = random.Random(seed).sample(rows, train + test)
            if other == name:
                break
            used = {row["image"] for row in chosen}
            rows = [row for row in rows if row["image"] not in used]
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "complete.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["image", "label", "split"])
            for number, row in enumerate(chosen):
                split = "train" if number < COCO[name][1] else "test"
                table.writerows((row["image"], label, split) for label in row["labels"].split("|"))
        tagfill.formats.csv.read(
            folder / "complete.csv", root=photos.absolute(), absent_means="absent", classes=classes
        ).save(folder / "complete")
    tagfill.features(folder / "complete", views="eval,flip", out=folder / "features", engine="joblib", jobs=jobs)


def protocol_dataset(job: Job) -> Path:
    """The dataset that a protocol leaves, made or found."""
    import tagfill
    from tagfill.protocols import dropped_positives, random_entries

    made: dict[str, Callable[[tagfill.Dataset], tagfill.Dataset]] = {
        ONE: lambda data: dropped_positives(data, keep="one", seed=job.seed),
        FORTY: lambda data: dropped_positives(data, keep=0.4, seed=job.seed),
        RANDOM: lambda data: random_entries(data, proportion=0.1, seed=job.seed),
    }
    folder = job.folder / "auto-protocols" / job.result.stem
    if not (folder / "dataset.yaml").exists():
        made[job.protocol](tagfill.Dataset.open(job.folder / "complete")).save(folder)
    return folder


def measure(job: Job) -> dict[str, float]:
    """Test mAP in percent of `auto`, its members, single methods and complete labels."""
    if job.result.exists():
        found: dict[str, float] = json.loads(job.result.read_text())
        return found
    import torch

    import tagfill
    from tagfill.io import write_json

    torch.set_num_threads(1)
    data, truth = tagfill.Dataset.open(protocol_dataset(job)), tagfill.Dataset.open(job.folder / "complete")
    ceiling = job.work / "auto-scores" / f"{job.source}-complete-s{job.seed}.json"
    if not ceiling.exists():
        write_json(ceiling, {CEILING: train(job, "bce", truth)[0], CEILING_AUTO: train(job, "auto", truth)[0]})
    scores: dict[str, float] = json.loads(ceiling.read_text())
    logits: dict[str, np.ndarray] = {}
    for name in SINGLES[job.protocol]:
        scores[name], members, _ = train(job, name, data)
        logits |= members
    scores["auto"], members, scores["seconds of auto"] = train(job, "auto", data)
    logits |= members
    known = truth.labels("test").dense()
    scores |= {name: mean_ap(members[name], known) for name in members}
    for step in STEPS:  # none of which competes
        if all(name in logits for name in step):
            parts = [logits[name] for name in step]
            spreads = [np.where(part.std(0) > 0, part.std(0), 1.0) for part in parts]  # a class may have no tag at all
            total = sum((part - part.mean(0)) / spread for part, spread in zip(parts, spreads, strict=True))
            scores[" + ".join(step)] = mean_ap(total, known)
    write_json(job.result, scores)
    return scores


def train(job: Job, method: str, dataset: Any) -> tuple[float, dict[str, np.ndarray], float]:
    """Train a method; test mAP in percent, boosted test logits of each member, and seconds."""
    from tagfill.models import Classifier
    from tagfill.training import build_recipe, start

    folder = job.work / "auto-runs" / job.result.stem / method
    content = {"dataset": str(dataset.folder), "method": method, "seed": job.seed, "select": "last"}
    run = start(dataset, build_recipe(content, features=job.folder / "features", epochs=EPOCHS), out=folder, force=True)
    seconds = sum(json.loads(line)["seconds"] for line in run.timings())
    model = Classifier.load(run.model_folder)
    if method != "auto":
        model = model.convert_head("cam", boost=BOOST, boost_train=False)
    total, members, labels = predict(model, job.folder)
    names = run.description()["auto"]["members"] if method == "auto" else [method]
    shutil.rmtree(folder)
    return mean_ap(total, labels), dict(zip(names, members, strict=True)), seconds


def predict(model: Any, folder: Path) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Test logits of a model and of each of its members, and the labels: N×L."""
    import torch

    import tagfill
    from tagfill.data import FeatureCache, FeatureSource
    from tagfill.models import EnsembleHead

    dataset = tagfill.Dataset.open(folder / "complete")
    source = FeatureSource(dataset, FeatureCache.open(folder / "features", dataset), maps=True, tokens=False, seed=0)
    head = model.head.eval()
    total, parts, labels = [], [], []
    with torch.inference_mode():
        for batch in source.evaluate("test", np.arange(len(dataset.split("test")))):
            total.append(head(batch.inputs).logits)
            if isinstance(head, EnsembleHead):
                parts.append(head.stacked(batch.inputs).logits.unflatten(1, (head.members, -1)))
            else:
                parts.append(total[-1][:, None])
            labels.append(batch.labels)
    of_members = torch.cat(parts).double().unbind(1)
    return torch.cat(total).double().numpy(), [each.numpy() for each in of_members], torch.cat(labels).numpy()


def mean_ap(scores: np.ndarray, labels: np.ndarray) -> float:
    from tagfill.metrics import average_precision

    return float(100 * np.nanmean(average_precision(scores, labels)))


if __name__ == "__main__":
    main()
