"""Kundu and Tighe, Exploiting weakly supervised visual patterns to learn from partial annotations, NeurIPS 2020.

Sections, equations and tables are those of the paper; "rebuttal" is its last page, the highlights of the rebuttal. Its
supplement, with CIFAR-100, LVIS and the knowledge graph, is not available to us, and no code was released.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.papers import Row, Said, Table, merged

FAMILY = ("se-i", "se-l", "se")
METHODS: dict[str, Said] = {
    # eq. 1 is a sum over labels; "averaged across all training examples in a batch"
    "ignore": {"§3": {"options.ignore.reduction": "batchmean"}},
    # "the loss term of each sample is weighted by a factor"
    "wne": {"§3": {"options.wne.reduction": "batchmean"}},
    "fe": {
        "§3": {"options.fe.unknown_as": "absent", "options.fe.reduction": "batchmean"},
        "§4.1.1": {"options.fe.positive_weight": 5.0},  # "a constant multiplicative weight of 5.0 for positive classes"
    },
    "ls": {},
    "se-i": {"§3": {"options.se-i.k": 10}},
    "se-l": {
        "§3": {"options.se-l.prototype": "median"},
        "rebuttal": {"options.se-l.uncovered": "ignore"},  # "we ignore such labels" where P(x), N(x) = ∅
    },
    "se": {
        "§3": {"options.se.k": 10, "options.se.prototype": "median"},
        "rebuttal": {"options.se.uncovered": "negative"},  # "the overall distance value defaults to 1"
    },
}
for name in FAMILY:
    METHODS[name] = merged(
        METHODS[name],
        {
            "§3": {  # "we use, k = 10, β = 5.0 and γ = 0"; eqs. 4 and 5 are minima
                f"options.{name}.beta": 5.0,
                f"options.{name}.gamma": 0.0,
                f"options.{name}.reduce": "min",
            },
            # "the confidence of un-annotated labels become higher (and hence the temperature becomes higher)", as eq. 8
            "§4.1.1": {f"options.{name}.temperature": "paper"},
        },
    )

NOT_STATED = "not stated"
LEFT_OPEN = {
    "head": 'the "output ∈ R^C" of a network; where it is pooled is not stated',
    "optimizer.decay_vectors": NOT_STATED,
    "options.ls.temperature": '§4.1.1: "a constant temperature value"',
    **{f"options.{name}.positive_weight": "§4.1.1 states 5.0 for FE" for name in ("ls", *FAMILY)},
    **{f"options.{name}.normalize": '§3: "by the maximum value of d+, d−", of each or of both' for name in FAMILY},
    **{f"options.{name}.distance": '§3: "can be Euclidean or cosine"' for name in FAMILY},
    **{f"options.{name}.search": NOT_STATED for name in ("se-i", "se")},
    "options.se-i.uncovered": '§4.1.1: "performs close to the NE", against eq. 5',
}
COCO: Said = {
    "§4.1.1": {
        "pretrained": True,
        "train": "all",
        "optimizer.name": "sgd",
        "optimizer.lr": 1e-3,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 5e-4,
        "schedule.name": "step",
        "schedule.milestones": [10, 20],
        "schedule.factor": 0.1,
        "batch_size": 24,
        "image_size": 224,
        "epochs": 36,
        "select": "mAP",  # "the highest mAP score on the validation dataset"
    }
}
COCO_OPEN = {"backbone": '§4.1.1: "ResNeXt101"', "flip": "augmentation is not mentioned"}
OPEN_IMAGES: Said = {
    "§4.2": {
        "backbone": "resnet101.tv_in1k",
        "pretrained": True,
        "train": "all",
        "image_size": 224,
        "flip": True,
        "vertical_flip": True,
        "optimizer.name": "adam",
        "optimizer.lr": 2e-4,  # "for all layers except the last"
        "optimizer.head_multiplier": 0.1,  # "for the last layer [...] 2×10⁻⁵"
        "schedule.name": "step",
        "schedule.milestones": [8, 15],
        "schedule.factor": 0.3,
        "epochs": 30,
    }
}
OPEN_IMAGES_OPEN = {"batch_size": '§4.2: "96 per GPU", of an unstated number', "select": NOT_STATED}
SUPPLEMENT = dict.fromkeys((*COCO["§4.1.1"], *COCO_OPEN), "in the supplement")
CALLED = {"full": "ignore", "ne": "ignore"}  # all labels are known to `full`, so NE is the cross-entropy of them

TABLE_1 = {  # validation mAP and mF1, test mAP and mF1
    "full": (64.42, 63.53, 62.79, 60.82),
    "ne": (59.43, 59.78, 57.70, 56.48),
    "wne": (61.48, 60.79, 59.25, 56.75),
    "fe": (61.27, 60.71, 60.12, 56.41),
    "ls": (64.18, 62.81, 63.47, 58.77),
    "se-i": (64.87, 63.31, 63.71, 58.15),
    "se-l": (65.44, 63.78, 64.56, 60.70),
    "se": (65.78, 64.03, 64.91, 60.48),
}
TABLE_2 = {"ne": 75.61, "wne": 77.18, "fe": 76.89, "ls": 79.32, "se-i": 77.56, "se-l": 80.17, "se": 80.67}
FRACTIONS = (5, 10, 30, 50, 70, 90)  # "5%, 10%, 30%, 50%, 70%, 90% of the positive labels"


def rows(numbers: Mapping[str, float | dict[str, float] | None], name: str) -> dict[str, Row]:
    """Rows by the name of a method, possibly followed by a fraction."""
    found = {}
    for row, reported in numbers.items():
        entry = row.rstrip("0123456789").removesuffix("-") if row[-1].isdigit() else row
        method = CALLED.get(entry, entry)
        found[row] = Row(reported, merged(METHODS[method], {name: {"method": method}}))
    return found


PANOPTIC = {
    row: {"mAP": test, "mF1": test_f1, "val mAP": val, "val mF1": val_f1}
    for row, (val, val_f1, test, test_f1) in TABLE_1.items()
}
NAMES = dict.fromkeys(TABLE_1)
SCORED = ("test", "step", "skip")
HELD_OUT = ("held_out=2000", "fraction=1 ")

# "For each fraction of partially annotated datasets, we create 5 separate subsets with different random seeds" (§4.1.1)
# and "5 different datasets based on different random seeds" (§4.1.2)
TABLES = {
    "se-coco17": Table(
        COCO, SCORED, ("year=2017", *(f"fraction={share / 100:g} " for share in FRACTIONS), *HELD_OUT, "--seed $SEED "),
        rows({"full": None, **{f"{name}-{share}": None for share in FRACTIONS for name in TABLE_2}}, "Figure 3"),
        {**LEFT_OPEN, **COCO_OPEN}, seeds=5, drawn_again=True,
    ),
    "se-coco-panoptic": Table(
        COCO, SCORED, ("coco-panoptic", "simulate hierarchy", *HELD_OUT, "--seed $SEED "), rows(PANOPTIC, "Table 1"),
        {**LEFT_OPEN, **COCO_OPEN}, seeds=5, drawn_again=True,
    ),
    "se-openimages-v5": Table(
        OPEN_IMAGES, SCORED, ("edition=v5",), rows(TABLE_2, "Table 2"), {**LEFT_OPEN, **OPEN_IMAGES_OPEN}
    ),
    "se-cifar100": Table(
        {}, SCORED, ("cifar100", "simulate hierarchy", "--seed $SEED "), rows(NAMES, "§4"), {**LEFT_OPEN, **SUPPLEMENT},
        seeds=5, drawn_again=True,
    ),
    "se-lvis": Table(
        {}, ("val", "step", "skip"), ("import lvis",), rows(dict.fromkeys(TABLE_2), "§4.2"),
        {**LEFT_OPEN, **SUPPLEMENT},
    ),
}  # fmt: skip
