"""Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations.

WACV 2023. Sections, equations and tables are those of the paper. Its appendices, which it cites for details of crops,
of K and of the heatmaps on ImageNet, are not available to us, and no code was released.
"""

from __future__ import annotations

from experiments.papers import Row, Said, Table, merged, per_stage

POSITIVES = {"voc12": 1.5, "coco14": 2.9, "nus": 1.9, "cub": 31.5}  # K, §4.1
WARMUP = "the loss of the first five epochs is not stated"
SEARCHED = "§4.1: searched in {0.1, 1}; the chosen value is not given"
NORM = "eqs. 6 and 7 are norms; how they are scaled beside eq. 5, a mean, is not stated"
LEFT_OPEN = {
    "options.an-ls.smoothing": "§4.1: selected among {0.1, 0.2}; the chosen value is not given",
    "options.cl.weight": SEARCHED,
    "options.scl.weight": SEARCHED,
    "options.cl.reduction": NORM,
    "options.scl.reduction": NORM,
    "options.scl.rounding": '§4.1: "8-bit unsigned integer format"',
    **{
        f"options.{name}.{option}": text
        for name in ("en", "ep")
        for option, text in {
            "literal": "eq. 5 adds a negative term to an annotated positive that drops out of the best p_i",
            "warmup": WARMUP,
            "use_warmup_scores": 'whether "the first training epoch" of §3.3 is that of the warm-up is not stated',
        }.items()
    },
}
METHOD: Said = {
    "§3.5": {"head": "cam"},  # "interpreting the fully connected layer as a 1×1 convolution", before pooling
    "eq. 6": {"options.cl.distance": "l1"},
    "eq. 7": {"options.scl.distance": "l1"},
    "§4.1": {  # "The EMA momentum is set to μ=0.8"
        f"options.{name}": 0.8
        for name in ("en.momentum", "ep.momentum", "cl.momentum", "scl.momentum", "scl.scores_momentum")
    },
    "code of Cole et al.": {  # §4.1: "We use the codebase shared by [9]"
        "options.role.optimizer": "dense_adam",
        "options.role.lr_multiplier": 10.0,
        "options.role.positive_term": "mean",
        "options.epr.weight": 1.0,
        "options.epr.positive_term": "mean",
    },
}
SETUP: Said = {
    "§4.1": {
        "backbone": "resnet50.tv_in1k",  # "The ResNet-50 [19] model from torchvision"
        "image_size": 448,
        "crop_scale": [0.25, 1.0],  # "area scale 0.25 to 1"
        "flip": True,
        "optimizer.name": "adam",
        "batch_size": 8,
        "select": "mAP",  # "the epoch corresponding to the best validation mAP"
    }
}
PRETRAINED: Said = {
    "§4.1": {  # "the final linear layer is trained for 5 epochs [...], followed by 25 epochs [...] of the whole"
        "pretrained": True,
        "train": per_stage("head", "all"),
        "epochs": per_stage(5, 25),
        "optimizer.lr": per_stage(1e-3, 1e-5),
        "schedule.name": per_stage("constant", "cosine"),
        "start.head": per_stage("new", "last"),
    }
}
SCRATCH: Said = {
    "§4.1": {"pretrained": False, "train": "all", "epochs": 100, "optimizer.lr": 1e-4, "schedule.name": "cosine"}
}
SINGLE = ("single-positive", "--seed 1200")  # "we use the code shared by [9] to simulate"
RELEASES = {"voc12": "import voc VOCdevkit", "coco14": "year=2014", "nus": "layout=arrays", "cub": "import cub"}
WITH_POSITIVES = ("role", "en", "ep", "epr")


def rows(numbers: dict[str, float], name: str, k: float, *, warmed_up: bool) -> dict[str, Row]:
    """Rows of a table; `full` is the "fully-annotated oracle (BCE)"."""
    found = {}
    for row, number in numbers.items():
        method = "bce" if row == "full" else row
        value = per_stage("an", method) if warmed_up and method != "an" else method  # the warm-up is ours, see WARMUP
        said: dict[str, dict[str, object]] = {name: {"method": value}}
        if method.split("+")[0] in WITH_POSITIVES:
            said["§4.1"] = {"expected_positives": k}
        found[row] = Row(number, said)
    return found


def parts(said: Said, row: str) -> Said:
    """Statements about the methods of a row, and those about no method."""
    names = [f"options.{part}." for part in row.split("+")]
    return {
        source: {path: value for path, value in says.items() if not path.startswith("options.") or _of(path, names)}
        for source, says in said.items()
    }


def _of(path: str, names: list[str]) -> bool:
    return any(path.startswith(name) for name in names)


def table(said: Said, scored: tuple[str, str, str], data: tuple[str, ...], found: dict[str, Row], **more: str) -> Table:
    """A table whose rows have the statements about their methods."""
    of_rows = {
        row: Row(one.reported, merged(parts(METHOD, row), one.said), one.left_open) for row, one in found.items()
    }
    return Table(said, scored, data, of_rows, {**LEFT_OPEN, **more})


TABLE_1 = {  # VOC12 and MS-COCO without pretraining; VOC12, MS-COCO, NUS and CUB with it
    "full": (53.1, 66.1, 90.0, 79.4, 53.7, 33.2),
    "an": (46.5, 49.1, 86.0, 69.0, 45.5, 21.1),
    "an-ls": (46.0, 46.1, 87.6, 70.3, 46.7, 16.0),
    "wan": (44.4, 45.1, 86.4, 69.3, 45.6, 21.3),
    "role": (45.0, 51.9, 87.8, 69.9, 47.8, 20.3),
    "en": (47.5, 53.4, 88.1, 71.8, 49.1, 22.3),
    "en+cl": (49.1, 55.0, 88.3, 71.9, 49.0, 22.1),
    "en+scl": (51.4, 54.0, 88.8, 73.2, 50.3, 22.5),
}
TABLE_2 = {
    "an": 69.4, "en": 72.3, "an+cl": 70.1, "en+cl": 72.4, "ep+cl": 65.8, "epr+cl": 71.7, "an+scl": 70.2,
    "en+scl": 73.7, "ep+scl": 64.6, "epr+scl": 72.3,
}  # fmt: skip
COLUMNS_3 = ("top-1", "top-1 ReaL", "ReaL mAP", "k=1", "k=2", "k=3", "k≥4")
TABLE_3 = {
    "an": (76.9, 83.1, 81.4, 88.0, 60.0, 36.8, 21.8),
    "en+cl": (77.1, 83.4, 81.7, 88.4, 60.5, 36.6, 21.7),
    "en+scl": (77.1, 83.9, 82.3, 88.5, 61.9, 38.1, 22.5),
}
IMAGENET: Said = {
    "§4.3": {
        "backbone": "resnet50.tv_in1k",  # "As in section 4.1, we use a ResNet-50 network pretrained on ImageNet"
        "pretrained": True,
        "optimizer.name": "adam",
        "optimizer.weight_decay": 1e-4,
        "train": per_stage("head", "all"),
        "epochs": per_stage(5, 25),
        "schedule.name": per_stage("constant", "cosine"),
        "start.head": per_stage("new", "last"),
        "crop_scale": None,  # "the standard crop and flip augmentations from [19]":
        "short_side": [256, 480],  # He et al.: "its shorter side randomly sampled in [256, 480]", "A 224×224 crop"
        "flip": True,
        "image_size": 224,
        "select": "last",  # "at the end of the finetuning"
    }
}
IMAGENET_METHODS = {"an": "an", "en+cl": per_stage("an", "en+cl"), "en+scl": per_stage("en", "en+scl")}


def imagenet_row(row: str) -> Row:
    said: dict[str, dict[str, object]] = {"Table 3": {"method": IMAGENET_METHODS[row]}, "§4.3": {}}
    if row != "an":
        said["§4.3"]["expected_positives"] = 1.22
    if row == "en+scl":  # "we only keep heatmaps for the 10 top-scoring classes after the warmup stage"
        said["§4.3"] |= {"options.scl.classes_per_image": 10, "start.memory": per_stage("new", "last")}
    return Row(dict(zip(COLUMNS_3, TABLE_3[row], strict=True)), said)


TABLES = {
    **{
        f"scl-{data}": table(
            merged(SETUP, PRETRAINED), ("test", "step", "zero"), (*SINGLE, RELEASES[data]),
            rows({row: numbers[at] for row, numbers in TABLE_1.items()}, "Table 1", POSITIVES[data], warmed_up=True),
        )
        for at, data in enumerate(("voc12", "coco14", "nus", "cub"), start=2)
    },
    **{
        f"scl-scratch-{data}": table(
            merged(SETUP, SCRATCH), ("test", "step", "zero"), (*SINGLE, RELEASES[data]),
            rows({row: numbers[at] for row, numbers in TABLE_1.items()}, "Table 1", POSITIVES[data], warmed_up=False),
        )
        for at, data in enumerate(("voc12", "coco14"))
    },
    "scl-ablation-coco14": table(
        merged(SETUP, PRETRAINED), ("val", "step", "zero"), SINGLE, rows(TABLE_2, "Table 2", 2.9, warmed_up=True)
    ),
    "scl-imagenet": table(
        IMAGENET, ("val", "step", "skip"), ("absent-means unknown",), {row: imagenet_row(row) for row in TABLE_3},
        **{"optimizer.lr": "§4.3: 1e-4 for the linear layer; that of the 25 epochs is not stated",
           "batch_size": "not stated", "optimizer.decay_vectors": "not stated"},
    ),
}  # fmt: skip
