"""Your own backbone: any module that turns pixels into a grid of features, under a name.

Tagfill takes the backbones of timm by name. One of your own is registered in `tagfill.models.BACKBONES`, and from
then on trains, caches features, predicts and exports like the others. It gets pixels in 0…1, B×3×H×W, and gives
B×D×G×G; heads and their class maps come on top. The small network here starts from random weights; one of yours may
load its weights when it is made, or from a safetensors file by `pretrained="weights.safetensors"`. Its `stages()` name
the places where it can be divided: after training the whole network, only the last block goes on, with a smaller rate.

    python examples/own_backbone.py

Two minutes on one core.
"""

import argparse
from itertools import pairwise
from pathlib import Path

from torch import Tensor, nn

import tagfill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--out", type=Path, default=Path("runs/own-backbone"))
args = parser.parse_args()


class SmallNetwork(nn.Module):
    """Four convolutions, each of which halves the image."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 128, 128)
        self.blocks = nn.Sequential(*(block(before, after) for before, after in pairwise(widths)))

    def stages(self) -> dict[str, nn.Module]:
        """In the order in which they run; `train: top` needs them, everything else does not."""
        return {f"block{number}": part for number, part in enumerate(self.blocks, start=1)}

    def forward(self, pixels: Tensor) -> Tensor:
        return self.blocks(2 * pixels - 1)


def block(before: int, after: int) -> nn.Module:
    """A convolution that halves the image."""
    convolution = nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU())


tagfill.models.BACKBONES["small_network"] = SmallNetwork

data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3, size=96)
run = tagfill.train(
    data,
    method="asl",
    backbone="small_network",
    pretrained=False,
    image_size=96,
    at="block3",  # `train: top` trains what lies above it
    stages=[
        {
            "name": "whole",
            "train": "all",
            "epochs": args.epochs,
            "optimizer": {"lr": 2e-3},
            "schedule": {"name": "one-cycle"},
        },
        {
            "name": "top",
            "train": "top",
            "epochs": (args.epochs + 4) // 5,
            "optimizer": {"lr": 1e-4},
            "start": {"backbone": "previous", "head": "last"},
        },
    ],
    out=args.out,
    force=True,
)
table = tagfill.evaluate(run, data, split="test")
model = tagfill.models.Classifier.load(run.model_folder)
print(f"{'':<24}{'test mAP':>10}")
print(f"{'guessing':<24}{100 * (table.positives / table.known).mean():>10.1f}")
print(f"{'small_network':<24}{100 * table.mean:>10.1f}")
print(f"Class maps have {model.backbone.grid[0]}×{model.backbone.grid[1]} cells of {model.backbone.channels} channels.")
