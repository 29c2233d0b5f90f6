"""Islam, Kreth and Midgaard, Multi-label Image Classification: Query2Label and MLSPL repeated on MS-COCO 2014.

Sections and tables are those of this paper. What it takes over without repeating it comes from the released code of
Query2Label (Liu et al., arXiv 2107.10834) and of MLSPL (Cole et al., CVPR 2021). It trains Query2Label only to see
whether it fits into memory; Table I scores the released weights.
"""

from __future__ import annotations

from experiments.papers import Row, Said, Table, merged
from experiments.papers.boostlu import COLE, LINEAR_INIT, ROLE

Q2L_CODE = "code of Query2Label"

MLSPL: Said = merged(
    ROLE,
    {
        "§4.2": {"backbone": "resnet50.tv_in1k", "pretrained": True},  # "an ImageNet pretrained ResNet-50"
        "Table II": {"method": "role"},
        "§5.4": {"batch_size": 16},
        COLE: {
            "expected_positives": 2.9,
            "head": "cam",  # a linear layer; pooled after it, which changes no logit
            "image_size": 448,
            "crop_scale": None,
            "flip": True,
            "strong": False,
            "optimizer.name": "adam",
            "schedule.name": "constant",
            "select": "mAP",
        },
    },
)
FEATURES: Said = {COLE: {"input": "cache", "flip": False}}  # extracted once
MLSPL_ROWS = {
    "role-linear": Row(
        {"mAP": 66.3, "of Cole et al.": 66.3},
        merged(FEATURES, {"§5.4": {"epochs": 25, "optimizer.lr": 1e-3, "train": "head"}}),
    ),
    "role-end-to-end": Row(
        {"mAP": 66.9, "of Cole et al.": 66.3},
        {"§5.4": {"epochs": 10, "optimizer.lr": 1e-5, "train": "all"}},  # "end-to-end fine-tuning"
    ),
    "role-linear-init": Row(  # §4.2: "69.0 on the COCO dataset", which Table II does not repeat
        {"of Cole et al.": 69.0},
        merged({COLE: {"batch_size": 16}, "Cole et al.": {"method": "role"}}, LINEAR_INIT),
    ),
}

QUERY2LABEL: Said = {
    "Table I": {"backbone": "resnet101.tv_in1k", "pretrained": True, "image_size": 448},
    "§3.4": {"method": "asl"},
    "§4.1": {"head": "query", "head_options.encoder_layers": 1, "head_options.decoder_layers": 2},
    "§5.3": {
        "optimizer.name": "adamw",
        "optimizer.lr": 1e-4,
        "optimizer.weight_decay": 1e-2,
        "epochs": 80,
        "strong": True,  # "random cutout with one hole and a cut factor of 0.5"
        "randaugment": "pytorch-randaugment",  # "RandAugment(n=2, m=9)"
    },
    Q2L_CODE: {
        "train": "all",
        "freeze": ["stem", "batch-norm"],
        "crop_scale": None,
        "flip": False,
        "optimizer.decay_vectors": True,
        "schedule.name": "one-cycle",
        "schedule.rise": 0.2,
        "average": 0.9997,
        "stopping.patience": 9,  # stops at epoch − best > 8
        "precision": "float16",
        "select": "mAP",
        "head_options.width": 2048,  # that of the features, without a projection
        "head_options.keep_input_projection": False,
        "head_options.ffn": 8192,
        "head_options.heads": 4,
        "head_options.dropout": 0.1,
        "head_options.keep_first_self_attention": False,
        "head_options.keep_other_self_attention": False,
        "options.asl.gamma_positive": 0.0,
        "options.asl.gamma_negative": 2.0,
        "options.asl.margin": 0.0,
        "options.asl.focal_gradient": False,
        "options.asl.reduction": "mean",
        "options.asl.scale": 1000.0,
        "options.asl.eps": 1e-5,
    },
}
OF_THE_PAPER: Said = {  # rows that end in -paper
    "§3.4": {"options.asl.gamma_negative": 1.0},  # "the value of 0 and 1 for positive and negative"
    "§4.1": {"head_options.keep_first_self_attention": True, "head_options.keep_other_self_attention": True},  # eq. 12
}
BACKBONES: dict[str, tuple[float, Said]] = {  # mAP, "Ours" and "Paper" alike
    "r101-448": (84.9, {}),
    "r101-576": (86.5, {"Table I": {"image_size": 576}}),
    "tresnet-l-448": (
        87.3,
        {
            "Table I": {"backbone": "tresnet_l.miil_in1k_448"},
            Q2L_CODE: {"freeze": ["stem"], "head_options.width": 2432},
        },
    ),
    "tresnet-l-22k-448": (89.2, {"Table I": {"backbone": "tresnet_v2_l.miil_in21k"}, Q2L_CODE: {"freeze": ["stem"]}}),
    "swin-l-22k-384": (
        90.5,
        {
            "Table I": {"backbone": "swin_large_patch4_window12_384.ms_in22k", "image_size": 384},
            Q2L_CODE: {"freeze": [], "head_options.width": 1536},
        },
    ),
    "cvt-w24-22k-384": (
        91.3,
        {
            "Table I": {
                "backbone": "cvt_w24_q2l",
                "pretrained": "cvt-w24-384-22k.safetensors",
                "image_size": 384,
            },
            Q2L_CODE: {"freeze": [], "head_options.width": 1024},
        },
    ),
}
UNVERIFIED = dict.fromkeys(
    ("optimizer.name", "optimizer.lr", "optimizer.weight_decay", "head_options.ffn"),
    "§5.3 gives them for ResNet-101 only",
)


def query2label() -> Table:
    """Table I, each backbone with the settings of the code and with those of the paper."""
    rows = {}
    for name, (reported, said) in BACKBONES.items():
        left_open = {} if name.startswith("r101") else UNVERIFIED
        rows[name] = Row(reported, said, left_open)
        rows[f"{name}-paper"] = Row(reported, merged(said, OF_THE_PAPER), left_open)
    batch = {"batch_size": "§5.3: 8, to fit into memory; Query2Label has 64 to 128"}
    return Table(QUERY2LABEL, ("val", "voc12", "skip"), ("year=2014", "images=all"), rows, batch)


TABLES = {
    "query2label-coco14": query2label(),
    "mlspl-coco14": Table(MLSPL, ("test", "step", "zero"), ("single-positive", "--seed 1200", "year=2014"), MLSPL_ROWS),
}
