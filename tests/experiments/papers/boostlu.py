"""Kim et al., Bridging the Gap between Model Explanations in Partially Annotated Multi-label Classification, CVPR 2023.

Sections and tables are those of the paper. Its baselines are "taken from [50]", which is Zhou et al. (ECCV 2022); their
settings are those of the released code of Cole et al., Zhou et al. and Ridnik et al.
"""

from __future__ import annotations

from experiments.papers import Row, Said, Table, merged, per_stage

COLE, ZHOU, LARGE_LOSS = "code of Cole et al.", "code of Zhou et al.", "code of Large Loss"
ASL = "code of Ridnik et al."
SPLITS = {"voc12": "import voc VOCdevkit", "coco14": "year=2014", "nus": "import nus-wide", "cub": "import cub"}
POSITIVES = {"voc12": 1.5, "coco14": 2.9, "nus": 1.9, "cub": 31.4}

SINGLE_POSITIVE: Said = {
    "§3.2": {"head": "cam"},
    "§6": {"select": "mAP"},  # "using the model weight with the highest mAP in the validation set"
    "§6.1": {
        "backbone": "resnet50.tv_in1k",  # "ResNet-50 pre-trained on ImageNet"; the code has torchvision's weights
        "pretrained": True,
        "train": "all",
        "image_size": 448,
        "crop_scale": None,  # "each image is resized to 448x448"
        "flip": True,  # "only random horizontal flipping"
        "strong": False,
        "epochs": 10,
        "optimizer.name": "adam",
        "schedule.name": "constant",
    },
}
SEARCHED = {
    "batch_size": "§6.1: searched in {8, 16}; the chosen values are not given",
    "optimizer.lr": "§6.1: searched in {1e-2, 1e-3, 1e-4, 1e-5}; the chosen values are not given",
}
RATES = {"ll-r": 0.5, "ll-ct": 0.2, "ll-cp": 0.1}
BOOSTED = {"head_options.boost": 5.0, "head_options.boost_from": 0.0}  # α = 5, β = 0
ALWAYS_BOOSTED = {"head_options.boost_train": True, "head_options.boost_eval": True}
ROLE: Said = {
    COLE: {
        "options.role.eps": 1e-5,
        "options.role.lr_multiplier": 10.0,
        "options.role.optimizer": "dense_adam",
        "options.role.positive_term": "mean",
    }
}
LINEAR_INIT: Said = {
    COLE: {
        "epochs": per_stage(25, 10),
        "train": per_stage("head", "all"),
        "input": per_stage("cache", "images"),  # features are extracted once, so without flips
        "optimizer.lr": per_stage(1e-3, 1e-5),
        "start.head": per_stage("new", "best"),
        "start.memory": per_stage("new", "best"),
        "start.backbone": "pretrained",
    }
}
EM = {  # batch, learning rate, α, warm-up, β
    "voc12": (8, 1e-5, 0.2, 5, 0.02),
    "coco14": (16, 1e-5, 0.1, 5, 0.9),
    "nus": (16, 1e-5, 0.1, 4, 0.2),
    "cub": (8, 1e-4, 0.01, 3, 0.4),
}


def large_loss(method: str, rate: float, *, boost: bool, section: str) -> Said:
    """Rows LL-* and their `+ BoostLU`."""
    said: Said = {
        section: {f"options.{method}.rate": rate, "optimizer.head_multiplier": 10.0},
        LARGE_LOSS: {f"options.{method}.candidates": "unknown"},
    }
    if method == "ll-cp":
        said = merged(said, {LARGE_LOSS: {"options.ll-cp.strict": False}})
    if boost:
        said = merged(said, {"§6": BOOSTED, "§5.4": ALWAYS_BOOSTED, "§6.1": {"head_options.boost_unseen": False}})
    return said


def entropy(method: str, dataset: str) -> Said:
    """Rows of Zhou et al. with their own settings."""
    batch, lr, alpha, warmup, beta = EM[dataset]
    pseudo = {"options.em-apl.warmup": warmup, "options.em-apl.beta": beta} if method == "em-apl" else {}
    options = {f"options.{method}.alpha": alpha, f"options.{method}.eps": 1e-5, **pseudo}
    return {ZHOU: {"batch_size": batch, "optimizer.lr": lr, "stopping.patience": 1, **options}}


TABLE_2 = {  # VOC, COCO, NUS, CUB
    "full": (89.42, 76.78, 52.08, 30.90),
    "an": (85.89, 64.92, 42.27, 18.31),
    "an-ls": (87.90, 67.15, 43.77, 16.26),
    "wan": (None, None, None, None),
    "asl": (87.76, 68.78, 46.93, 18.81),
    "role": (87.77, 67.04, 41.63, 13.66),
    "role-linear-init": (88.26, 69.12, 45.98, 14.86),
    "em": (89.09, 70.70, 47.15, 20.85),
    "em-apl": (89.19, 70.87, 47.59, 21.84),
    "ll-r": (88.27, 70.70, 48.76, 19.56),
    "ll-r+boost": (89.29, 72.89, 49.59, 19.80),
    "ll-ct": (87.79, 70.29, 48.08, 19.06),
    "ll-ct+boost": (88.61, 71.78, 48.37, 19.25),
    "ll-cp": (87.44, 70.27, 47.92, 19.21),
    "ll-cp+boost": (87.81, 71.41, 48.61, 19.34),
}


def said_of_row(row: str, dataset: str) -> Said:
    """What is known about a row of Table 2."""
    method, _, boost = row.partition("+")
    expected = {COLE: {"expected_positives": POSITIVES[dataset]}}
    if method in RATES:
        return large_loss(method, RATES[method], boost=bool(boost), section="§6.1")
    if method in ("em", "em-apl"):
        return entropy(method, dataset)
    if method == "role":
        return merged(ROLE, expected)
    if method == "role-linear-init":
        return merged({COLE: {"batch_size": 8 if dataset == "cub" else 16}}, ROLE, LINEAR_INIT, expected)
    if method == "asl":
        options = {"gamma_positive": 0.0, "gamma_negative": 4.0, "margin": 0.05, "focal_gradient": False}
        return {ASL: {f"options.asl.{name}": value for name, value in {**options, "reduction": "sum"}.items()}}
    if method == "full":
        return {}
    smoothing = {"options.an-ls.smoothing": 0.1} if method == "an-ls" else {}
    return {COLE: {f"options.{method}.eps": 1e-5, **smoothing}}


METHODS = {"full": "bce", "role-linear-init": "role"}
LEFT_OPEN = {
    "em": {"options.em.use_negatives": "there are no known negatives in this setting"},
    "em-apl": {"options.em-apl.use_negatives": "there are no known negatives in this setting"},
    "asl": {"options.asl.scale": "a factor on the loss, which Adam cancels"},
}


def single_positive(column: int, dataset: str) -> Table:
    """One dataset of Table 2."""
    rows = {}
    for name, numbers in TABLE_2.items():
        source = "Cole et al." if name == "wan" else "Table 2"  # a baseline of theirs that Table 2 leaves out
        said = merged({source: {"method": METHODS.get(name, name.split("+")[0])}}, said_of_row(name, dataset))
        rows[name] = Row(numbers[column], said, LEFT_OPEN.get(name, {}))
    data = ("single-positive", "--seed 1200", SPLITS[dataset])
    return Table(SINGLE_POSITIVE, ("test", "step", "zero"), data, rows, SEARCHED, seeds=3)


TABLE_1 = {  # VOC, COCO; boosted in training, at inference
    "an": (86.10, 64.58, False, False),
    "an+boost-eval": (87.31, 66.27, False, True),
    "an+boost": (86.73, 65.33, True, True),
    "ll-r": (88.24, 70.60, False, False),
    "ll-r+boost-train": (87.18, 68.45, True, False),
    "ll-r+boost-eval": (88.90, 70.87, False, True),
    "ll-r+boost": (89.27, 72.82, True, True),
}


def ablation(column: int, dataset: str) -> Table:
    """One dataset of Table 1."""
    rows = {}
    for name, numbers in TABLE_1.items():
        method, train, infer = name.split("+")[0], numbers[2], numbers[3]
        said: Said = {"§6.1": {"optimizer.head_multiplier": 10.0}, "Table 1": {"method": method}}
        if method == "ll-r":
            said = merged(said, large_loss("ll-r", 0.5, boost=False, section="§6.1"))
        if train or infer:
            uses = {"head_options.boost_train": train, "head_options.boost_eval": infer}
            said = merged(said, {"§6": BOOSTED, "Table 1": uses, "§6.1": {"head_options.boost_unseen": False}})
        rows[name] = Row(numbers[column], said)
    data = ("single-positive", "--seed 1200", SPLITS[dataset])
    return Table(SINGLE_POSITIVE, ("test", "step", "zero"), data, rows, SEARCHED)


TABLE_3 = {  # groups 1 to 5, all classes; CNN-RNN and IMCL are methods that Tagfill does not have
    "curriculum": (70.37, 71.32, 76.23, 80.54, 86.81, 77.05),
    "p-asl": (73.19, 78.61, 85.11, 87.70, 90.61, 83.03),
    "ll-r": (77.76, 79.07, 81.94, 84.51, 89.36, 82.53),
    "ll-r+boost": (79.28, 80.81, 83.32, 85.63, 90.27, 83.86),
    "ll-ct": (77.76, 79.18, 81.97, 84.46, 89.51, 82.58),
    "ll-ct+boost": (79.43, 80.75, 83.41, 85.70, 90.41, 83.94),
    "ll-cp": (77.49, 79.22, 81.89, 84.51, 89.18, 82.46),
    "ll-cp+boost": (79.53, 81.04, 83.40, 85.85, 90.39, 84.04),
}
OPEN_IMAGES: Said = {
    "§3.2": {"head": "cam"},
    "§6": {"select": "mAP"},
    "§6.2": {
        "backbone": "resnet101.tv_in1k",
        "pretrained": True,
        "train": "all",
        "image_size": 224,
        "crop_scale": None,
        "flip": True,
        "strong": False,
        "batch_size": 288,
        "epochs": 20,
        "optimizer.name": "adam",
        "optimizer.lr": 2e-5,
        "schedule.name": "constant",
    },
}
BORROWED = "Table 3: borrowed from Ben-Baruch et al., whose settings the paper does not repeat"
BORROWED_SETTINGS = ("train", "batch_size", "epochs", "optimizer.name", "optimizer.lr", "optimizer.head_multiplier")


def large_scale() -> Table:
    """Table 3."""
    rows = {}
    for name, (*groups, mean) in TABLE_3.items():
        method, _, boost = name.partition("+")
        reported = {"mAP": mean, **{f"G{number}": value for number, value in enumerate(groups, start=1)}}
        left_open = dict.fromkeys(BORROWED_SETTINGS, BORROWED)
        if method == "curriculum":
            left_open |= {f"options.curriculum.{name}": BORROWED for name in ("present_above", "absent_below", "every")}
            said: Said = {"Table 3": {"method": "curriculum"}}
        elif method == "p-asl":
            # §2: also "ignored losses from categories with high prediction scores or label prior values"
            left_open |= {"method": BORROWED, "start.memory": "the prior comes from another model"}
            csl = {"gammas": [0.0, 1.0, 2.0], "likely": 5, "threshold": 0.05, "clip": 0.0, "prior": "estimate"}
            options = {f"options.csl.{name}": value for name, value in csl.items()}
            helper = {
                "options.p-asl.mode": "ignore",
                "options.p-asl.gammas": [0.0, 1.0, 2.0],
                "options.p-asl.clip": 0.0,
            }
            said = {"code of Ben-Baruch et al.": {**options, **helper}}
        else:
            said = merged({"Table 3": {"method": method}}, large_loss(method, 0.005, boost=bool(boost), section="§6.2"))
            left_open = {f"options.{method}.candidates": "nothing on known negatives"}
        rows[name] = Row(reported, said, left_open)
    return Table(OPEN_IMAGES, ("test", "step", "zero"), ("edition=v3",), rows)


TABLES = {
    **{f"spml-{name}": single_positive(column, name) for column, name in enumerate(SPLITS)},
    "boostlu-openimages-v3": large_scale(),
    **{f"boostlu-ablation-{name}": ablation(column, name) for column, name in enumerate(("voc12", "coco14"))},
}
