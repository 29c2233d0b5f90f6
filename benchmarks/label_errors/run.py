"""Find wrong annotations of photos beside cleanlab; writes benchmarks/results/label_errors.json and its page.

    python benchmarks/label_errors/run.py voc2012.tar --work cache
    python benchmarks/label_errors/run.py voc2012.tar --work cache --coco coco --coco-features coco-features

VOC 2012 takes about an hour on two free cores. The folder `coco` is a dataset of COCO photos with complete labels (the
published numbers are of 2,900 training photos), and `coco-features` its feature cache. Scores are kept in the work
folder, which may be that of benchmarks/voc12, and results are written after every case, so the script can be stopped
and started again. cleanlab is part of the extra `bench`. All rules judge the same cross-fitted probabilities of the
same annotations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "voc12"))  # for material.py; its page.py is behind that of this folder

from bookkeeping import Record, say
from material import Material
from page import page
from scores import COMPLETE, EPOCHS, FOLDS, ONE_CLASS, ONE_TAG, SHARE, SHARE_OF_CLASS, Case, Photos, Scored, scored

import tagfill
from tagfill.curation.label_errors import find_label_errors, suspicion
from tagfill.probabilities import sigmoid

RECORD = Record("label_errors", ("curation", "training", "methods"), libraries=("torch", "cleanlab"))
SEEDS, NEW_SEED = 3, 3  # the constants of the rule were chosen while looking at the first three seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("voc", type=Path, help="VOC 2012, a folder or a tar archive")
    parser.add_argument("--work", type=Path, default=Path("runs/voc12"), help="folder for photos, features and scores")
    parser.add_argument("--coco", type=Path, help="dataset folder of COCO photos with complete labels")
    parser.add_argument("--coco-features", type=Path, help="feature cache of these photos")
    given = parser.parse_args()
    material = Material(given.work.absolute())
    material.prepare(given.voc)
    material.features("eval", 2)
    voc = Photos("VOC 2012", material.open("full"), material.open("single"), material.work / "features" / "eval", "an")
    coco = None
    if given.coco is not None:
        coco = Photos("COCO", tagfill.Dataset.open(given.coco), None, given.coco_features.absolute(), "em")
    results = {
        **RECORD.begin(" voc2012.tar" + (" --coco coco --coco-features coco-features" if coco else "")),
        "settings": {
            "methods": {photos.title: photos.method for photos in (voc, coco) if photos},
            "photos": {photos.title: len(photos.complete.split("train")) for photos in (voc, coco) if photos},
            "epochs": EPOCHS,
            "folds": FOLDS,
            "share": SHARE,
            "share_of_class": SHARE_OF_CLASS,
            "new_seed": NEW_SEED,
        },
        "rows": [],
    }
    for case in cases(voc, coco):
        say(f"{case.photos.title}, {case.labels}, {'errors' if case.wrong else 'correct'}, seed {case.seed}")
        results["rows"] += measured(case, scored(case, material.work / "label_errors"))
        RECORD.write(results, page(results))


def cases(voc: Photos, coco: Photos | None) -> Iterator[Case]:
    """What is measured, in order."""
    for labels in (ONE_TAG, COMPLETE):
        for seed in (*range(SEEDS), NEW_SEED):
            for wrong in (True, False):
                yield Case(voc, labels, wrong, seed)
    for seed in range(SEEDS):
        yield Case(voc, ONE_CLASS, True, seed)
    if coco is not None:
        for labels in (ONE_TAG, COMPLETE):
            for wrong in (True, False):
                yield Case(coco, labels, wrong, 0)


def measured(case: Case, data: Scored) -> list[dict[str, Any]]:
    """Results of each rule on one case, per annotation and per photo."""
    annotated, wrong = data.labels >= 0, data.wrong
    found = []
    for rule, (per_pair, per_photo, shown) in _judged(data).items():
        one = {"photos": case.photos.title, "labels": case.labels, "wrong": case.wrong, "seed": case.seed, "rule": rule}
        one |= {"annotations": int(annotated.sum()), "errors": int(wrong.sum())}
        one |= {"shown": int(shown.sum()), "right": int((shown & wrong).sum())}
        one |= _quality(per_pair[annotated], wrong[annotated], "")
        one |= _quality(per_photo, wrong.any(1), "photo_")
        if rule == "tagfill":
            errors = find_label_errors(data.logits, data.labels)
            one |= {"low_tags": errors.low_tags, "hard_tags": errors.hard_tags}
        found.append(one)
    return found


def _judged(data: Scored) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]]:
    """For each rule: suspicion of pairs, N×L, and of photos, N, larger is more suspicious; and what it shows, N×L."""
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
    from cleanlab.multilabel_classification.rank import get_label_quality_scores, get_label_quality_scores_per_class

    p, tags, annotated = sigmoid(data.logits), data.labels == 1, data.labels >= 0
    lists = [np.flatnonzero(row).tolist() for row in tags]
    errors = find_label_errors(data.logits, data.labels)
    shown = np.zeros(p.shape, dtype=bool)
    shown[errors.image, errors.label] = True
    ours = suspicion(data.logits, data.labels)
    issues = np.asarray(find_multilabel_issues_per_class(lists, p))
    contradiction = np.where(tags, 1 - p, p)
    most = np.where(annotated, contradiction, 0).max(1)
    return {
        "tagfill": (ours, ours.max(1), shown),
        "cleanlab": (
            -get_label_quality_scores_per_class(lists, p),
            -get_label_quality_scores(lists, p),
            issues & annotated,
        ),
        "0.5": (contradiction, most, (contradiction >= 0.5) & annotated),
    }


def _quality(suspicions: NDArray[np.float64], wrong: NDArray[np.bool_], prefix: str) -> dict[str, float]:
    from sklearn.metrics import roc_auc_score

    if not wrong.any():
        return {}
    first = np.argsort(-suspicions, kind="stable")[: wrong.sum()]
    return {
        f"{prefix}precision": float(wrong[first].mean()),
        f"{prefix}auroc": float(roc_auc_score(wrong, suspicions)),
    }


if __name__ == "__main__":
    main()
