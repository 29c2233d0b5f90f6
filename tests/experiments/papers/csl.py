"""Ben-Baruch et al., Multi-label Classification with Partial Annotations using Class-aware Selective Loss (CVPR 2022).

The settings are those of the released code and its commands; sections of the paper are not typed here.
"""

from __future__ import annotations

from experiments.papers import Row, Said, Table, merged, per_stage

CODE = "code of Ben-Baruch et al."

TRAINING: Said = {
    CODE: {
        "backbone": "tresnet_m.miil_in21k",
        "pretrained": True,
        "image_size": 448,
        "batch_size": 64,
        "train": "all",
        "epochs": 30,
        "crop_scale": None,
        "flip": False,
        "strong": True,  # Cutout of 0.5 and RandAugment
        "optimizer.name": "adam",
        "optimizer.lr": 2e-4,
        "optimizer.weight_decay": 1e-4,
        "optimizer.decay_vectors": False,
        "schedule.name": "one-cycle",
        "schedule.rise": 0.2,
        "average": 0.9997,
        "precision": "float16",
        "select": "mAP",
    }
}
LEFT_OPEN = {"randaugment": "a package that the code imports", "head": "pooling and a linear layer, in either order"}
HELPER_OPEN = {"start.memory": "the prior of another model is read from a file"}


def plain(mode: str) -> Said:
    """Cross-entropy with unknown labels ignored or negative."""
    options = {"mode": mode, "gammas": [0.0, 0.0, 0.0], "clip": 0.0}
    return {CODE: {"method": "p-asl", **{f"options.p-asl.{name}": value for name, value in options.items()}}}


def selective(gammas: list[float], threshold: float, backbone: str = "tresnet_m.miil_in21k") -> Said:
    """CSL after a model in mode `ignore`, which estimates the prior."""
    csl = {"gammas": gammas, "likely": 5, "threshold": threshold, "clip": 0.0, "prior": "estimate"}
    helper = {"mode": "ignore", "gammas": gammas, "clip": 0.0}
    return {
        CODE: {
            "backbone": backbone,
            "method": per_stage("p-asl", "csl"),
            **{f"options.csl.{name}": value for name, value in csl.items()},
            **{f"options.p-asl.{name}": value for name, value in helper.items()},
        }
    }


ASL: Said = {
    "code of Ridnik et al.": {
        "options.asl.gamma_positive": 0.0,
        "options.asl.gamma_negative": 4.0,
        "options.asl.margin": 0.05,
        "options.asl.focal_gradient": False,
        "options.asl.reduction": "sum",
    },
    CODE: {"method": "asl"},
}


def coco(numbers: tuple[float, float, float, float], gammas: list[float], data: tuple[str, ...]) -> Table:
    """MS-COCO 2014 with TResNet-M."""
    ignore, negative, negative_asl, csl = numbers
    rows = {
        "ignore": Row(ignore, plain("ignore")),
        "negative": Row(negative, plain("negative")),
        "negative-asl": Row(negative_asl, ASL, {"options.asl.scale": "a factor on the loss, which Adam cancels"}),
        "csl": Row(csl, selective(gammas, 0.5), HELPER_OPEN),
    }
    return Table(TRAINING, ("val", "rank", "skip"), data, rows, LEFT_OPEN)


OPEN_IMAGES = {
    "ignore": Row(85.38, plain("ignore")),
    "negative": Row(85.85, plain("negative")),
    "csl": Row(86.72, selective([0.0, 1.0, 2.0], 0.05), HELPER_OPEN),
    "csl-tresnet-l": Row(87.34, selective([0.0, 1.0, 2.0], 0.05, "tresnet_v2_l.miil_in21k"), HELPER_OPEN),
}

TABLES = {
    "csl-coco14-fpc": coco((76.46, 81.24, 81.64, 83.44), [0.0, 3.0, 4.0], ("fixed-per-class", "per_class=1000")),
    "csl-coco14-rps": coco((84.90, 81.21, 81.91, 85.21), [0.0, 1.0, 4.0], ("random-entries", "proportion=0.5")),
    "csl-openimages-v6": Table(
        merged(TRAINING, {CODE: {"image_size": 224}}), ("test", "rank", "skip"), ("edition=v6",), OPEN_IMAGES, LEFT_OPEN
    ),
}
