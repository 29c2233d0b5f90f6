"""How the papers train and score, typed from the papers; tests compare the recipes with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

WHOLE = (None, True, False, False)  # crop, flip, upside down, strong
STRONG = (None, False, False, True)


@dataclass(frozen=True)
class Protocol:
    """How the rows of a table are trained and scored; one value per stage if there are several."""

    net: str
    px: int
    optimizer: str
    lr: tuple[float, ...]
    batch: int
    epochs: tuple[int, ...]
    scored: tuple[str, str, str]  # split, average precision, classes without positives
    data: tuple[str, ...]  # what the commands must contain
    views: tuple[object, ...] = WHOLE
    decay: float = 0.0
    head_rate: float = 1.0
    schedule: tuple[object, ...] = ("constant",)
    select: str = "mAP"
    average: float | None = None
    pretrained: object = True


SPLITS = {"voc12": "import voc VOCdevkit", "coco14": "year=2014", "nus": "import nus-wide", "cub": "import cub"}
SINGLE = ("single-positive", "--seed 1200")
COLE = ("test", "step", "zero")
SPML = Protocol("resnet50.tv_in1k", 448, "adam", (1e-5,), 16, (10,), COLE, SINGLE)
CROPS = ((0.25, 1.0), True, False, False)
TUNED = Protocol(
    "resnet50.tv_in1k", 448, "adam", (1e-3, 1e-5), 8, (5, 25), COLE, SINGLE, CROPS, schedule=("constant", "cosine")
)
SCRATCH = replace(TUNED, lr=(1e-4,), epochs=(100,), schedule=("cosine",), pretrained=False)
SE = Protocol(
    "resnext101_32x8d.tv_in1k", 224, "sgd", (1e-3,), 24, (36,), ("test", "step", "skip"), (), decay=5e-4,
    schedule=(("step", (10, 20), 0.1),),
)  # fmt: skip
PATCHML = Protocol(
    "deit_base_patch16_224.fb_in1k", 224, "adam", (5e-5,), 128, (20,), ("val", "step", "skip"), ("simulate budget",)
)
PATCHML_COCO = replace(PATCHML, data=("year=2014", "images=all", "percent=0.25", "located_per_image=3.5"))
CSL = Protocol(
    "tresnet_m.miil_in21k", 448, "adam", (2e-4,), 64, (30,), ("val", "rank", "skip"), (), STRONG, decay=1e-4,
    schedule=(("one-cycle", 0.2),), average=0.9997,
)  # fmt: skip
HELD_OUT = ("held_out=2000", "fraction=1 ")

PROTOCOLS = {
    **{f"spml-{k}": replace(SPML, data=(*SINGLE, part)) for k, part in SPLITS.items()},
    **{f"boostlu-ablation-{k}": replace(SPML, data=SINGLE, head_rate=10.0) for k in ("voc12", "coco14")},
    **{f"scl-{k}": replace(TUNED, data=(*SINGLE, part)) for k, part in SPLITS.items()},
    **{f"scl-scratch-{k}": SCRATCH for k in ("voc12", "coco14")},
    "scl-ablation-coco14": replace(TUNED, scored=("val", "step", "zero")),
    "scl-imagenet": Protocol(
        "resnet50.tv_in1k", 224, "adam", (1e-4, 1e-5), 64, (5, 25), ("val", "step", "skip"), ("absent-means unknown",),
        ((0.08, 1.0), True, False, False), decay=1e-4, schedule=("constant", "cosine"), select="last",
    ),
    "mlspl-coco14": replace(SPML, lr=(1e-3, 1e-5), epochs=(25, 10)),
    "se-coco17": replace(SE, data=("year=2017", "fraction=0.05 ", "fraction=0.9 ", *HELD_OUT)),
    "se-coco-panoptic": replace(SE, data=("coco-panoptic", "simulate hierarchy", *HELD_OUT)),
    "se-cifar100": replace(SE, data=("cifar100", "simulate hierarchy")),
    "se-lvis": replace(SE, data=("import lvis",), scored=("val", "step", "skip")),
    "se-openimages-v5": replace(
        SE, net="resnet101.tv_in1k", optimizer="adam", lr=(2e-4,), batch=96, epochs=(30,), decay=0.0, head_rate=0.1,
        views=(None, True, True, False), schedule=(("step", (8, 15), 0.3),), data=("edition=v5",),
    ),
    "boostlu-openimages-v3": Protocol(
        "resnet101.tv_in1k", 224, "adam", (2e-5,), 288, (20,), COLE, ("edition=v3",), head_rate=10.0
    ),
    **{f"patchml-coco14-{k}": PATCHML_COCO for k in ("kinds", "instances", "unlabeled", "networks")},
    "patchml-coco14-patchcluster": replace(PATCHML, epochs=(20, 1, 20)),
    "patchml-objects365": replace(PATCHML, data=("objects365", "percent=0.05", "located_per_image=5")),
    "query2label-coco14": Protocol(
        "resnet101.tv_in1k", 448, "adamw", (1e-4,), 128, (80,), ("val", "voc12", "skip"), ("year=2014", "images=all"),
        STRONG, decay=1e-2, schedule=(("one-cycle", 0.2),), average=0.9997,
    ),
    "csl-coco14-fpc": replace(CSL, data=("fixed-per-class", "per_class=1000")),
    "csl-coco14-rps": replace(CSL, data=("random-entries", "proportion=0.5")),
    "csl-openimages-v6": replace(CSL, px=224, data=("edition=v6",), scored=("test", "rank", "skip")),
}  # fmt: skip

LINEAR_INIT = {"lr": (1e-3, 1e-5), "epochs": (25, 10)}
EM = {  # batch, learning rate, α, warm-up, β
    "voc12": (8, 1e-5, 0.2, 5, 0.02),
    "coco14": (16, 1e-5, 0.1, 5, 0.9),
    "nus": (16, 1e-5, 0.1, 4, 0.2),
    "cub": (8, 1e-4, 0.01, 3, 0.4),
}
POSITIVES = {"voc12": 1.5, "coco14": 2.9, "nus": 1.9, "cub": 31.4}
LARGE = {"ll-r": 0.5, "ll-ct": 0.2, "ll-cp": 0.1}
Q2L = {
    "r101-448": ("resnet101.tv_in1k", 448, 128, 2048), "r101-576": ("resnet101.tv_in1k", 576, 64, 2048),
    "tresnet-l-448": ("tresnet_l.miil_in1k_448", 448, 64, 2048),
    "tresnet-l-22k-448": ("tresnet_v2_l.miil_in21k", 448, 64, 2048),
    "swin-l-22k-384": ("swin_large_patch4_window12_384.ms_in22k", 384, 64, 1536),
    "cvt-w24-22k-384": ("cvt_w24", 384, 64, 1024),
}  # fmt: skip


def expected(name: str, row: str) -> Protocol:
    """The protocol of a row: that of its table, with the differences of the row."""
    protocol = PROTOCOLS[name]
    if name.startswith("spml-"):
        if row.startswith("ll-"):
            protocol = replace(protocol, head_rate=10.0)
        if row in ("em", "em-apl"):
            batch, lr, *_ = EM[name.removeprefix("spml-")]
            protocol = replace(protocol, batch=batch, lr=(lr,))
        if row == "role-linear-init":
            protocol = replace(protocol, **LINEAR_INIT, batch=8 if name == "spml-cub" else 16)
    if name == "mlspl-coco14" and row == "role-linear":
        protocol = replace(protocol, lr=(1e-3,), epochs=(25,))
    if name == "query2label-coco14":
        net, px, batch, _ = Q2L[row.removesuffix("-paper")]
        weights = "cvt-w24-384-22k.safetensors" if net == "cvt_w24" else True
        protocol = replace(protocol, net=net, px=px, batch=batch, pretrained=weights)
    if row.endswith("tscam-384"):
        protocol = replace(protocol, net="deit_base_patch16_384.fb_in1k", px=384)
    if name.startswith("csl-") and row.startswith("csl"):
        protocol = replace(protocol, lr=(2e-4, 2e-4), epochs=(30, 30))
    if row == "csl-tresnet-l":
        protocol = replace(protocol, net="tresnet_v2_l.miil_in21k")
    return protocol
