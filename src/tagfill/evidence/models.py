"""Scores from models that run here: an older model of the user's, or the bundled ImageNet classifier.

**An older model** may know some of the classes under other names; `class_map` translates them, and classes that it does
not know stay without a score.

**The ImageNet prior** needs no label at all. The classifier of the bundled network knows 1,000 classes, and a sentence
encoder carries them over to the class names of the dataset (ConSE; Norouzi et al., Zero-Shot Learning by Convex
Combination of Semantic Embeddings, ICLR 2014):

    v(x) = Σ_k P_k(x)·t_k  over the 20 most probable classes k,    score(x, c) = cos(v(x), t_c)

P are the classifier's probabilities, with logits divided by 2 because photos of several things deserve less certainty,
and t the text vectors of ImageNet's classes (the mean of two: the first name, and all names with WordNet's definition,
which timm has) and of the dataset's (their names, or what the user writes about them).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.data import FeatureCache, FeatureSource
from tagfill.data.extract import features as extract_features
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError, unknown_name
from tagfill.evidence.importing import ImportResult
from tagfill.evidence.scores import Evidence, ScoreMatrix, check_name, evidence_path, now
from tagfill.evidence.text_vectors import WordVectors
from tagfill.inference import find_images, open_predictor
from tagfill.inference.pipeline import BATCH_SIZE, score_images
from tagfill.progress import NOTEBOOK, Progress

PRIOR_BACKBONE = "tf_efficientnet_lite0"
_MOST = 20  # ImageNet classes of an image
_TEMPERATURE = 2.0  # of their logits
_CHUNK = 4096


def score_with_model(
    model: str | os.PathLike[str],
    dataset: Dataset | str | os.PathLike[str],
    *,
    name: str,
    class_map: Mapping[str, str] | None = None,
    skip_unknown: bool = True,
    force: bool = False,
    workers: int = 0,
    device: str = "auto",
    progress: Progress = NOTEBOOK,
) -> ImportResult:
    """Score the images of a dataset with a trained model, and keep its logits as evidence.

    Args:
        model: a run or its folder, a model folder, or an ONNX file.
        dataset: the dataset or its folder.
        name: of the evidence.
        class_map: name of a class of the model → name in the dataset; of several, the largest logit counts.
        skip_unknown: leave out classes of the model that the dataset does not have; otherwise they are an error.
        force: replace evidence of the same name.
        workers: threads that decode images.
        device: `cpu`, `cuda`, `mps` or `auto`.
        progress: receives the number of images done.
    """
    data = open_for_scores(dataset, name, force)
    predictor = open_predictor(model, device=device)
    ours = _columns(predictor.classes, data, dict(class_map or {}), skip_unknown)
    if not (ours >= 0).any():
        raise TagfillError(
            f"{model} and dataset {data.name} share no class; translate names with --map 'THEIRS=OURS'. The model "
            f"knows {', '.join(predictor.classes[:5])}…"
        )
    images = find_images(data, progress=progress)
    scores = np.full((len(data), len(data.classes)), np.nan, dtype=np.float32)
    with progress.bar("scoring", len(images), "img") as bar:
        for batch, outputs in score_images(predictor, images, batch_size=BATCH_SIZE, workers=workers):
            for theirs in np.flatnonzero(ours >= 0):
                column = scores[batch.index, ours[theirs]]
                scores[batch.index, ours[theirs]] = np.fmax(column, outputs.logits[:, theirs])
            bar.advance(len(batch.index) + len(batch.bad))
    unknown = tuple(sorted(predictor.classes[at] for at in np.flatnonzero(ours < 0)))
    return keep_scores(scores, data, name, "logits", f"model {Path(model).name}", unknown, force)


def prior_is_installed(backbone: str = PRIOR_BACKBONE) -> bool:
    """Whether features of this backbone can be scored by the ImageNet prior without a download."""
    return backbone == PRIOR_BACKBONE and WordVectors.installed()


def score_with_prior(
    dataset: Dataset | str | os.PathLike[str],
    *,
    name: str = "prior",
    texts: Mapping[str, str] | None = None,
    features: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Progress = NOTEBOOK,
) -> ImportResult:
    """Score the images of a dataset by what the bundled ImageNet classifier sees, without any label.

    Args:
        dataset: the dataset or its folder.
        name: of the evidence.
        texts: class name → text to compare with instead of the name, such as "dining table".
        features: a cache of the bundled backbone's features; by default it is made in Tagfill's own cache.
        force: replace evidence of the same name.
        progress: receives the number of images done.

    Raises:
        TagfillError: if the sentence encoder is not installed (`pip install 'tagfill[prior]'`).
    """
    from tagfill.models.weights import bundled_classifier

    data = open_for_scores(dataset, name, force)
    given = dict(texts or {})
    for label in given:
        if label not in data.classes:
            raise unknown_name("class", label, data.classes, of=f"dataset {data.name}")
    encoder = WordVectors.load()
    wanted = encoder.encode([given.get(label, label) for label in data.classes])
    known = imagenet_vectors(encoder)
    weight, bias = bundled_classifier(PRIOR_BACKBONE)
    if features is None:
        features = extract_features(
            data, backbone=PRIOR_BACKBONE, pretrained="bundled", views="eval", progress=progress
        ).folder
    scores = np.full((len(data), len(data.classes)), np.nan, dtype=np.float32)
    for rows, pooled in _pooled(data, FeatureCache.open(features, data)):
        scores[rows] = conse(pooled @ weight.T + bias, known, wanted)
    return keep_scores(scores, data, name, "cosines", "ImageNet classifier and word vectors", (), force)


def conse(
    logits: NDArray[np.floating],
    known: NDArray[np.floating],
    wanted: NDArray[np.floating],
    *,
    most: int = _MOST,
    temperature: float = _TEMPERATURE,
) -> NDArray[np.float32]:
    """Cosines of images and wanted classes, by the text vectors of the classes that a classifier knows.

    Args:
        logits: n×K, of known classes.
        known: K×D text vectors of length 1.
        wanted: L×D text vectors of length 1.
        most: number of most probable known classes that an image is described by.
        temperature: divides the logits.

    >>> known, wanted = np.eye(3), np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]])
    >>> conse(np.array([[5.0, 0.0, 0.0]]), known, wanted, most=1).tolist()
    [[1.0, 0.0]]
    """
    x = np.asarray(logits, dtype=np.float64) / temperature
    most = min(most, x.shape[1])
    top = np.argpartition(-x, most - 1, axis=1)[:, :most]
    power = np.exp(np.take_along_axis(x, top, axis=1) - x.max(1, keepdims=True))
    vectors = np.einsum("nk,nkd->nd", power, np.asarray(known, dtype=np.float64)[top])
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines: NDArray[np.float32] = (vectors @ np.asarray(wanted, dtype=np.float64).T).astype(np.float32)
    return cosines


def imagenet_vectors(encoder: WordVectors) -> NDArray[np.float32]:
    """1,000×D text vectors of ImageNet's classes, of length 1."""
    texts = imagenet_texts()
    both = encoder.encode(texts) + encoder.encode([text.partition(".")[0].partition(",")[0] for text in texts])
    vectors: NDArray[np.float32] = both / np.maximum(np.linalg.norm(both, axis=1, keepdims=True), 1e-12)
    return vectors


def imagenet_texts() -> list[str]:
    """Names and definitions of ImageNet's 1,000 classes, in the order of a classifier.

    >>> imagenet_texts()[0]
    'tench, Tinca tinca. freshwater dace-like game fish of Europe and western Asia noted for ability to survive ...'
    """
    from timm.data.imagenet_info import ImageNetInfo

    info = ImageNetInfo()
    pairs = zip(info.label_descriptions(), info.label_descriptions(detailed=True), strict=True)
    return [f"{name}. {detailed.partition(': ')[2]}" for name, detailed in pairs]


def _pooled(data: Dataset, cache: FeatureCache) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Rows of the image table and pooled features, chunk by chunk."""
    source = FeatureSource(data, cache, maps=False, tokens=False, seed=0)
    for split, rows in data.splits.items():
        for start in range(0, len(rows), _CHUNK):
            index = np.arange(start, min(start + _CHUNK, len(rows)))
            for batch in source.evaluate(split, index):
                inputs = batch.inputs.float()
                pooled = inputs.mean(dim=(2, 3)) if inputs.ndim == 4 else inputs
                yield rows[batch.index.numpy()], pooled.numpy()


def open_for_scores(dataset: Dataset | str | os.PathLike[str], name: str, force: bool) -> Dataset:
    """The dataset; raises before any work is done if the evidence cannot be stored."""
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    check_name(name)
    if evidence_path(data, name).exists() and not force:
        raise TagfillError(f"{evidence_path(data, name)} exists already; choose another name, or give --force.")
    return data


def _columns(
    theirs: tuple[str, ...], data: Dataset, class_map: dict[str, str], skip_unknown: bool
) -> NDArray[np.int64]:
    """The class of the dataset for each class of a model; -1 for none."""
    for name, ours in class_map.items():
        if name not in theirs:
            raise unknown_name("class", name, theirs, of="the model")
        if ours not in data.classes:
            raise unknown_name("class", ours, data.classes, of=f"dataset {data.name}")
    position = {label: number for number, label in enumerate(data.classes)}
    found = [position.get(class_map.get(name, name), -1) for name in theirs]
    if not skip_unknown and -1 in found:
        lost = theirs[found.index(-1)]
        raise TagfillError(
            f"The class '{lost}' of the model is no class of dataset {data.name}; map it with --map '{lost}=CLASS'."
        )
    return np.array(found, dtype=np.int64)


def keep_scores(
    scores: NDArray[np.floating],
    data: Dataset,
    name: str,
    scale: str,
    source: str,
    skipped: tuple[str, ...],
    force: bool,
) -> ImportResult:
    """Save scores as evidence."""
    evidence = Evidence(name, scale, source, now(), ScoreMatrix.from_dense(scores))
    evidence.save(data, force=force)
    return ImportResult(evidence, "wide", False, 0, skipped)
