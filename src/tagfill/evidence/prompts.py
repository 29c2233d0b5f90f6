"""Scores from text prompts: a vision-language model such as CLIP compares photos with descriptions of the classes.

    t_c        mean of the vectors of all texts of a class (its synonyms in every template), scaled to length 1
    whole      cos(v(x), t_c)
    tiles      max over 3×3 tiles of cos(v(tile), t_c)

Small objects fill a tile but not a photo, so tiles are a second piece of evidence, and how much each counts is learned
later from the known labels. Image vectors do not depend on the texts. They are kept in Tagfill's cache, in half
precision and in parts of 256 images, so that other prompts cost seconds and an interrupted call continues. Parts with a
replaced photo, and all parts if a file of weights was replaced, are made again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.dataset import Dataset
from tagfill.errors import ImageError, TagfillError, unknown_name
from tagfill.evidence.importing import ImportResult
from tagfill.evidence.models import keep_scores, open_for_scores
from tagfill.images import file_sizes, file_times, open_root, thumbnail
from tagfill.io import atomic_write, cache_folder, sha256_of_strings
from tagfill.progress import NOTEBOOK, Progress

TEMPLATES = ("a photo of a {}.", "a photo of the {}.", "there is a {} in the photo.", "a close-up photo of a {}.")
DEFAULT_MODEL = "open_clip:ViT-B-32/laion2b_s34b_b79k"
_PART = 256  # images of a part of the cache
_SIDE = 672  # pixels; a third of it is the input of most models


class PromptEncoder(Protocol):
    """A model with an image and a text tower; vectors have length 1."""

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """n×D."""
        ...

    def encode_images(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """n×D."""
        ...


def score_with_prompts(
    dataset: Dataset | str | os.PathLike[str],
    *,
    model: str = DEFAULT_MODEL,
    name: str = "clip",
    templates: Sequence[str] = TEMPLATES,
    texts: Mapping[str, Sequence[str]] | None = None,
    tiles: int = 3,
    encoder: PromptEncoder | None = None,
    device: str = "auto",
    force: bool = False,
    progress: Progress = NOTEBOOK,
) -> list[ImportResult]:
    """Score the images of a dataset by descriptions of its classes.

    Args:
        dataset: the dataset or its folder.
        model: `open_clip:ARCHITECTURE/WEIGHTS`; weights are a name that open_clip knows, a file, or `none`.
        name: of the evidence; tiles are `NAME-tiles`.
        templates: sentences with `{}` for a text of a class.
        texts: class name → synonyms or descriptions instead of the name.
        tiles: rows and columns of tiles; 0 for none.
        encoder: to use instead of `model`, which then is the key of its vectors in the cache.
        device: `cpu`, `cuda`, `mps` or `auto`.
        force: replace evidence of the same names.
        progress: receives the number of images done.

    Raises:
        TagfillError: if open_clip is not installed (`pip install 'tagfill[clip]'`), or a template has no `{}`.
    """
    names = [name] if tiles == 0 else [name, f"{name}-tiles"]
    data = open_for_scores(dataset, names[-1], force)
    open_for_scores(data, names[0], force)
    described = _texts_of_classes(data, templates, texts)
    towers = encoder or OpenClip.load(model, device)
    vectors = class_vectors(towers, described, templates)
    whole, parts = (np.full((len(data), len(data.classes)), np.nan, dtype=np.float32) for _ in range(2))
    with progress.bar("encoding photos", len(data), "img") as bar:
        for start in range(0, len(data), _PART):
            rows = np.arange(start, min(start + _PART, len(data)))
            scores = _image_vectors(towers, model, data, rows, tiles).astype(np.float32) @ vectors.T
            whole[rows] = scores[:, 0]
            parts[rows] = scores[:, 1:].max(1) if tiles else np.nan
            bar.advance(len(rows))
    found = [keep_scores(whole, data, names[0], "cosines", model, (), force)]
    if tiles:
        found.append(keep_scores(parts, data, names[1], "cosines", f"{model}, {tiles}×{tiles} tiles", (), force))
    return found


def save_class_vectors(
    dataset: Dataset | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    model: str = DEFAULT_MODEL,
    templates: Sequence[str] = TEMPLATES,
    texts: Mapping[str, Sequence[str]] | None = None,
    encoder: PromptEncoder | None = None,
    device: str = "auto",
    force: bool = False,
) -> tuple[int, int]:
    """Write the text vectors of the classes of a dataset, from which a head can begin (`init=text`).

    Args:
        dataset: the dataset or its folder.
        path: the safetensors file.
        model: `open_clip:ARCHITECTURE/WEIGHTS`, whose texts they are.
        templates: sentences with `{}` for a text of a class.
        texts: class name → synonyms or descriptions instead of the name.
        encoder: to use instead of `model`.
        device: `cpu`, `cuda`, `mps` or `auto`.
        force: replace an existing file.

    Returns:
        The number of classes and the size of a vector.
    """
    from tagfill.models.class_vectors import write_class_vectors

    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    if Path(path).exists() and not force:
        raise TagfillError(f"{path} exists already; choose another file, or give --force.")
    described = _texts_of_classes(data, templates, texts)
    vectors = class_vectors(encoder or OpenClip.load(model, device), described, templates)
    write_class_vectors(Path(path), data.classes, vectors)
    return len(data.classes), vectors.shape[1]


def _texts_of_classes(
    data: Dataset, templates: Sequence[str], texts: Mapping[str, Sequence[str]] | None
) -> list[Sequence[str]]:
    """What describes each class: its name, or the given texts; raises if a class or a template is wrong."""
    if wrong := [template for template in templates if "{}" not in template]:
        raise TagfillError(f"The template '{wrong[0]}' has no {{}} for the class; write it as in '{TEMPLATES[0]}'.")
    given = dict(texts or {})
    for label in given:
        if label not in data.classes:
            raise unknown_name("class", label, data.classes, of=f"dataset {data.name}")
    return [given.get(label, [label]) for label in data.classes]


def class_vectors(
    encoder: PromptEncoder, texts: Sequence[Sequence[str]], templates: Sequence[str]
) -> NDArray[np.float32]:
    """L×D: the mean vector of all texts of a class in all templates, scaled to length 1."""
    found = []
    for words in texts:
        mean = encoder.encode_texts([template.format(word) for word in words for template in templates]).mean(0)
        found.append(mean / max(float(np.linalg.norm(mean)), 1e-12))
    return np.stack(found).astype(np.float32)


def split_tiles(image: Image.Image, count: int) -> list[Image.Image]:
    """The tiles of a photo, count×count of equal size.

    >>> [tile.size for tile in split_tiles(Image.new("RGB", (90, 60)), 3)][:2]
    [(30, 20), (30, 20)]
    """
    width, height = image.size
    across, down = ([round(side * at / count) for at in range(count + 1)] for side in (width, height))
    return [
        image.crop((across[x], down[y], max(across[x + 1], across[x] + 1), max(down[y + 1], down[y] + 1)))
        for y in range(count)
        for x in range(count)
    ]


def _image_vectors(
    encoder: PromptEncoder, model: str, data: Dataset, rows: NDArray[np.int64], tiles: int
) -> NDArray[np.float16]:
    """n×(1 + tiles²)×D of some images, from the cache if they are there; NaN for images that cannot be decoded."""
    names, root = data.names(rows), open_root(data.root)
    files = [*file_sizes(root, names), *file_times(root, names)]
    known = (model, _weights_file(model), tiles, data.root, sha256_of_strings(names), files)
    key = hashlib.sha256("\n".join(map(str, known)).encode()).hexdigest()
    path = cache_folder() / "prompts" / key[:2] / f"{key[2:34]}.npy"
    if path.is_file():
        try:
            return np.asarray(np.load(path, allow_pickle=False), dtype=np.float16)
        except (ValueError, OSError, EOFError):
            path.unlink(missing_ok=True)  # damaged: made again
    found: list[NDArray[np.float32] | None] = []
    for name in names:
        try:
            image = thumbnail(root, name, _SIDE).convert("RGB")
        except ImageError:
            found.append(None)
            continue
        found.append(encoder.encode_images([image, *split_tiles(image, tiles)] if tiles else [image]))
    there = next((vectors for vectors in found if vectors is not None), None)
    if there is None:
        raise TagfillError(
            f"None of {len(names)} photos can be decoded, the first is {names[0]}; check the image root."
        )
    nothing = np.full_like(there, np.nan)
    vectors = np.stack([nothing if one is None else one for one in found]).astype(np.float16)
    with atomic_write(path, sync=False) as file:
        np.save(file, vectors, allow_pickle=False)
    return vectors


def _weights_file(model: str) -> tuple[int, int] | None:
    """Size and time of the file of weights, if the model names one: another file may get its name."""
    path = Path(model.partition(":")[2].partition("/")[2])
    return (path.stat().st_size, path.stat().st_mtime_ns) if path.is_file() else None


class OpenClip:
    """A model of open_clip.

    Args:
        model: with `encode_image` and `encode_text`.
        preprocess: turns a photo into a tensor.
        tokenizer: turns texts into tokens.
        device: of the model.
    """

    def __init__(self, model: Any, preprocess: Any, tokenizer: Any, device: Any) -> None:
        self._model, self._preprocess, self._tokenizer, self._device = model.eval(), preprocess, tokenizer, device

    @classmethod
    def load(cls, name: str, device: str = "auto") -> OpenClip:
        """Load `open_clip:ARCHITECTURE/WEIGHTS`; open_clip downloads weights that are neither a file nor `none`."""
        library, _, rest = name.partition(":")
        architecture, _, weights = rest.partition("/")
        if library != "open_clip" or not architecture or not weights:
            raise TagfillError(
                f"The model '{name}' is not written as open_clip:ARCHITECTURE/WEIGHTS, such as {DEFAULT_MODEL}; "
                "weights may also be a file, or none."
            )
        try:
            import open_clip
        except ImportError:
            raise TagfillError("Text prompts need open_clip; run: pip install 'tagfill[clip]'.") from None
        from tagfill.models.device import choose_device

        place = choose_device(device)
        try:
            model, _, preprocess = open_clip.create_model_and_transforms(
                architecture, pretrained=None if weights == "none" else weights, device=place
            )
        except (RuntimeError, OSError, ValueError) as error:
            hint = "" if not Path(weights).suffix or Path(weights).is_file() else f"; there is no file {weights}"
            raise TagfillError(
                f"open_clip cannot load {architecture} with the weights {weights}: {str(error).splitlines()[0]}{hint}."
            ) from None
        return cls(model, preprocess, open_clip.get_tokenizer(architecture), place)

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """n×D vectors of length 1."""
        import torch

        with torch.inference_mode():
            return self._unit(self._model.encode_text(self._tokenizer(list(texts)).to(self._device)))

    def encode_images(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """n×D vectors of length 1."""
        import torch

        with torch.inference_mode():
            pixels = torch.stack([self._preprocess(image) for image in images]).to(self._device)
            return self._unit(self._model.encode_image(pixels))

    @staticmethod
    def _unit(vectors: Any) -> NDArray[np.float32]:
        found: NDArray[np.float32] = (vectors / vectors.norm(dim=-1, keepdim=True)).float().cpu().numpy()
        return found
