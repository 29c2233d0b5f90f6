"""A contestant: extraction as an ordinary script does it, with any of Tagfill's speed-ups switched on."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contest import BACKBONE, SIZE, cpu_seconds, peak_mb, tell
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import tagfill.torchvision_remedy  # noqa: F401  (before torchvision)
from tagfill.images import EVAL, load_view
from tagfill.models.allocator import disable_heap_trimming
from tagfill.models.weights import BUNDLED_MEAN, BUNDLED_STD, load_bundled_weights

SPEED_UPS = ("channels_last", "kept_memory", "inference_mode", "bytes", "one_call")
MEAN, STD = (value / 255 for value in (BUNDLED_MEAN[0], BUNDLED_STD[0]))
BATCH = 32


class Photos(Dataset[Tensor]):
    def __init__(self, folder: Path, speed_ups: set[str]) -> None:
        from torchvision import transforms

        self._folder, self._one_call = folder, "one_call" in speed_ups
        self._names = sorted(path.name for path in folder.iterdir())
        resize = [transforms.Resize((SIZE, SIZE), transforms.InterpolationMode.BICUBIC)]
        last = [transforms.ToTensor(), transforms.Normalize([MEAN] * 3, [STD] * 3)]
        if "bytes" in speed_ups:
            last = [transforms.PILToTensor()]
        self._transform = transforms.Compose(last if self._one_call else resize + last)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Tensor:
        if self._one_call:
            pixels, _ = load_view(self._folder, self._names[index], EVAL, (SIZE, SIZE), seed=0, index=index)
            return self._transform(Image.fromarray(pixels))
        with Image.open(self._folder / self._names[index]) as image:
            return self._transform(image.convert("RGB"))


def build(speed_ups: set[str]) -> Any:
    import timm

    model: Any = timm.create_model(BACKBONE)
    model.load_state_dict(load_bundled_weights(model, BACKBONE), strict=False)  # all but the classifier
    model.reset_classifier(0)
    return (model.to(memory_format=torch.channels_last) if "channels_last" in speed_ups else model).eval()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--with", dest="speed_ups", nargs="*", default=[], choices=SPEED_UPS)
    options = parser.parse_args()
    speed_ups = set(options.speed_ups)
    if "kept_memory" in speed_ups:
        disable_heap_trimming()
    torch.set_num_threads(1)
    model = build(speed_ups)
    loader = DataLoader(Photos(options.folder / "images", speed_ups), batch_size=BATCH, num_workers=options.workers)
    mode = torch.inference_mode if "inference_mode" in speed_ups else torch.no_grad
    options.out.mkdir(parents=True, exist_ok=True)

    def extract() -> float:
        maps, pooled = [], []
        with mode():
            for images in loader:
                if "bytes" in speed_ups:
                    images = (images.float() / 255 - MEAN) / STD
                if "channels_last" in speed_ups:
                    images = images.contiguous(memory_format=torch.channels_last)
                features = model.forward_features(images)
                maps.append(features.half().numpy())
                pooled.append(nn.functional.adaptive_avg_pool2d(features, 1).flatten(1).numpy())
        np.save(options.out / "maps.npy", np.concatenate(maps))
        np.save(options.out / "pooled.npy", np.concatenate(pooled))
        return time.perf_counter()

    tell(ready=True)
    while sys.stdin.readline().strip():
        begin, cpu = time.perf_counter(), cpu_seconds()
        end = extract()
        tell(wall=end - begin, cpu=cpu_seconds() - cpu, peak=peak_mb())


if __name__ == "__main__":
    main()
