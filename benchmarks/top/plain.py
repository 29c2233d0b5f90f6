"""A contestant: a plain PyTorch script that freezes the lower stages, and decodes and runs them in every epoch."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from contest import take_turns
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import tagfill.torchvision_remedy  # noqa: F401  (before torchvision)

CLASSES = 20
TRAINED = {"tf_efficientnet_lite0": ("blocks.6", "conv_head", "bn2"), "resnet50": ("layer4",)}


class Photos(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, folder: Path) -> None:
        from torchvision import transforms

        self._paths = sorted(folder.iterdir())
        self._transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(224, scale=(0.25, 1.0)),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize([0.5] * 3, [0.5] * 3),
            ]
        )

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        with Image.open(self._paths[index]) as image:
            pixels: Tensor = self._transform(image.convert("RGB"))
        return pixels, nn.functional.one_hot(torch.tensor(index % CLASSES), CLASSES).float()


def main() -> None:
    import timm

    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backbone", required=True, choices=TRAINED)
    parser.add_argument("--batch", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model: Any = timm.create_model(options.backbone, num_classes=CLASSES)
    model.requires_grad_(False)
    for name in (*TRAINED[options.backbone], model.pretrained_cfg["classifier"]):
        model.get_submodule(name).requires_grad_(True)
    model.eval()  # batch norms are frozen; autograd keeps nothing of the lower stages, which have no weights that train
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=1e-4)
    criterion = nn.BCEWithLogitsLoss()
    loader = DataLoader(Photos(options.folder / "images"), batch_size=options.batch, shuffle=True, num_workers=1)

    def epoch() -> float:
        for images, targets in loader:
            optimizer.zero_grad(set_to_none=True)
            criterion(model(images), targets).backward()
            optimizer.step()
            end = time.perf_counter()  # before the worker is waited for
        return end

    take_turns(epoch)


if __name__ == "__main__":
    main()
