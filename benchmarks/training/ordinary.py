"""A contestant: training as an ordinary script does it, with any of Tagfill's speed-ups switched on."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rounds import take_turns
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import tagfill.torchvision_remedy  # noqa: F401  (before torchvision)
from tagfill.images import CROP, load_view
from tagfill.models.allocator import disable_heap_trimming
from tagfill.models.weights import BUNDLED_MEAN, BUNDLED_STD, load_bundled_weights

SPEED_UPS = ("channels_last", "kept_memory", "out_of_place", "uint8", "one_call")
CLASSES = 20
MEAN, STD = (value / 255 for value in (BUNDLED_MEAN[0], BUNDLED_STD[0]))


class Photos(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, folder: Path, speed_ups: set[str]) -> None:
        from torchvision import transforms

        self._folder, self._one_call = folder, "one_call" in speed_ups
        self._names = sorted(path.name for path in folder.iterdir())
        crop = [transforms.RandomResizedCrop(224, scale=(0.25, 1.0)), transforms.RandomHorizontalFlip()]
        last = [transforms.ToTensor(), transforms.Normalize([MEAN] * 3, [STD] * 3)]
        if "uint8" in speed_ups:
            last = [transforms.PILToTensor()]
        self._transform = transforms.Compose(last if self._one_call else crop + last)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        target = nn.functional.one_hot(torch.tensor(index % CLASSES), CLASSES).float()
        if self._one_call:
            epoch = int(torch.randint(2**31, ()))
            pixels, _ = load_view(self._folder, self._names[index], CROP, (224, 224), seed=0, epoch=epoch, index=index)
            return self._transform(Image.fromarray(pixels)), target
        with Image.open(self._folder / self._names[index]) as image:
            return self._transform(image.convert("RGB")), target


def build(speed_ups: set[str]) -> Any:
    import timm

    model: Any = timm.create_model("tf_efficientnet_lite0")
    model.load_state_dict(load_bundled_weights(model, "tf_efficientnet_lite0"), strict=False)  # all but the classifier
    model.reset_classifier(CLASSES)
    if "out_of_place" in speed_ups:
        for module in model.modules():
            if isinstance(module, nn.ReLU6):
                module.inplace = False
    return model.to(memory_format=torch.channels_last) if "channels_last" in speed_ups else model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--with", dest="speed_ups", nargs="*", default=[], choices=SPEED_UPS)
    options = parser.parse_args()
    speed_ups = set(options.speed_ups)
    if "kept_memory" in speed_ups:
        disable_heap_trimming()
    torch.set_num_threads(1)
    model = build(speed_ups).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    criterion = nn.BCEWithLogitsLoss()
    photos = Photos(options.folder / "images", speed_ups)
    loader = DataLoader(photos, batch_size=options.batch, shuffle=True, num_workers=1)

    def epoch() -> float:
        for images, targets in loader:
            if "uint8" in speed_ups:
                images = (images.float() / 255 - MEAN) / STD
            if "channels_last" in speed_ups:
                images = images.contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad(set_to_none=True)
            criterion(model(images), targets).backward()
            optimizer.step()
            end = time.perf_counter()  # before the worker is waited for
        return end

    take_turns(epoch)


if __name__ == "__main__":
    main()
