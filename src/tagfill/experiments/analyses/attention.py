"""Where attention goes.

query   the mean over heads of the attention of a label's query to the cells, in the last decoder layer
tscam   the class token's attention A, the class map S, and their product A · S

Query2Label (Liu et al., 2021) shows the first, TS-CAM (Gao et al., ICCV 2021) the second. Attention of a backbone needs
its images; that of the `query` head also comes from cached features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.experiments import examples, pictures
from tagfill.experiments.analyses.subjects import Question, Subject, file_name
from tagfill.experiments.report import Figure, Section, Table
from tagfill.models.tscam import coupled
from tagfill.training.trained import Trained

Maps = dict[str, NDArray[np.float32]]  # column → n×H×W, one label an image


def attention(question: Question, *, split: str = "test", images: int = 5) -> Section:
    """What the query head attends to for a label; attention, class map and their product of the tscam head.

    Args:
        question: runs with the head `query` or `tscam`.
        split: of the images.
        images: examples, each with one label.
    """
    figures = []
    for label in question.labels:
        figures.append(_drawn(question.seeds_of(label)[0], split, images))
    text = f"The images are the first of {split} that show a new class; numbers are the scores of that class."
    facts = {label: {"images": images} for label in question.labels}
    return Section("attention", "Attention", (text,), tuple(figures), facts=facts)


def _drawn(subject: Subject, split: str, count: int) -> Figure:
    chosen = examples.pairs(subject.dataset, split, count)
    index = np.array([image for image, _ in chosen], dtype=np.int64)
    label = np.array([label for _, label in chosen], dtype=np.int64)
    photos = examples.photos(subject.dataset, split, index)
    if photos is None:
        raise TagfillError(f"The images of {subject.dataset.name} are not at hand, and attention is shown over them.")
    maps, scores = looks(subject, split, index, label)
    names = subject.dataset.names(subject.dataset.split(split)[index])
    rows, numbers = [], []
    for at, photo in enumerate(photos):
        name = subject.dataset.classes[label[at]]
        shown = [pictures.overlay(photo, values[at]) for values in maps.values()]
        rows.append(pictures.Row(name, [photo, *shown], [f"{scores[at]:.3f}"]))
        numbers += [(names[at], name, round(float(scores[at]), 6), column, *peak(v[at])) for column, v in maps.items()]
    title = f"attention-{file_name(subject.label)}"
    return Figure(
        title,
        f"{subject.label} with the {subject.run.recipe.head} head; each map from its lowest to its highest value.",
        f"{len(rows)} images beside {', '.join(maps)}.",
        pictures.png(pictures.grid(["image", *maps], rows, side=192)),
        data=Table(title, "Where maps are highest.", ("image", "label", "score", "map", "x", "y"), numbers),
    )


def looks(
    subject: Subject, split: str, index: NDArray[np.int64], label: NDArray[np.int64]
) -> tuple[Maps, NDArray[np.float32]]:
    """Attention of some images for one label each, and the scores of those labels."""
    own = subject.run.recipe.head == "query"
    trained = subject.trained() if own else Trained.open(subject.run, subject.dataset, maps=True)
    maps: dict[str, list[NDArray[np.float32]]] = {}
    scores = []
    done = 0
    for batch, prediction in trained.predict(split, index, maps=not own, attention=True):
        assert prediction.attention is not None
        which = label[done : done + len(batch.index)]
        every = np.arange(len(which))
        done += len(which)
        found = {"attention": prediction.attention}
        if own:
            found = {"attention, mean over heads": prediction.attention.mean(1)[every, which]}
        elif prediction.maps is not None:
            found |= {"class map": prediction.maps[every, which], "product": coupled(prediction)[every, which]}
        for name, values in found.items():
            maps.setdefault(name, []).append(values.float().numpy(force=True))
        scores.append(prediction.logits.sigmoid().numpy(force=True)[every, which])
    return {name: np.concatenate(values) for name, values in maps.items()}, np.concatenate(scores)


def peak(values: NDArray[np.floating]) -> tuple[float, float]:
    """The middle of the highest cell, relative to the image.

    >>> peak(np.array([[0.0, 0.0], [0.0, 1.0]]))
    (0.75, 0.75)
    """
    row, column = np.unravel_index(int(np.argmax(values)), values.shape)
    return round((int(column) + 0.5) / values.shape[1], 4), round((int(row) + 0.5) / values.shape[0], 4)
