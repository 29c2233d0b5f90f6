"""The memory of the best epoch, kept for a stage that starts from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save
from torch import Tensor

from tagfill.files import replacing, write_json
from tagfill.memory import Memory


def keep(memory: Memory, folder: Path) -> None:
    """Copy everything that a memory holds, in files and outside of them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with replacing(folder / "memory.safetensors", sync=False) as file:
        file.write(save({name: value.detach().contiguous() for name, value in memory.state_dict().items()}))
    for path in memory.paths():
        shutil.copyfile(path, folder / path.name)
    write_json(folder / "checksums.json", memory.checksums(), sync=False)


def take(folder: Path, into: Path | None) -> tuple[dict[str, Tensor], tuple[int, dict[str, str]] | None]:
    """What `Memory` needs to begin with the kept state, whose files are copied to a new place."""
    checksums: dict[str, str] = json.loads((folder / "checksums.json").read_text(encoding="utf-8"))
    if into is not None:
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        for path in folder.glob("*.u8"):
            shutil.copyfile(path, into / path.name)
    return load_file(folder / "memory.safetensors"), (0, checksums) if checksums else None
