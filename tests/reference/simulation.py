"""Selection rules of the protocols, in plain loops.

`truth` is {image: {label: 1 or 0}}; the result has the same form and holds what is kept.
"""

from __future__ import annotations

import math

import numpy as np

from reference.pair_numbers import number, uniform

Labels = dict[str, dict[str, int]]


def pick(truth: Labels, pairs: set[tuple[str, str]]) -> Labels:
    return {
        image: {label: value for label, value in labels.items() if (image, label) in pairs}
        for image, labels in truth.items()
    }


def pairs_of(truth: Labels, value: int | None = None) -> list[tuple[str, str]]:
    return [(i, label) for i, labels in truth.items() for label, v in labels.items() if value is None or v == value]


def smallest(pairs: list[tuple[str, str]], count: int, seed: int) -> list[tuple[str, str]]:
    return sorted(pairs, key=lambda pair: number(seed, *pair))[:count]


def k_positives(truth: Labels, num_pos: int, num_neg: int, seed: int) -> Labels:
    rng = np.random.RandomState(seed)
    kept: set[tuple[str, str]] = set()
    for image, labels in truth.items():
        names = list(labels)
        for value, count in ((1, num_pos), (0, num_neg)):
            indices = np.array([index for index, name in enumerate(names) if labels[name] == value], dtype=np.int64)
            rng.shuffle(indices)
            chosen = indices if count == -1 else indices[:count]
            kept |= {(image, names[index]) for index in chosen}
    return pick(truth, kept)


def random_entries(truth: Labels, proportion: float, seed: int) -> Labels:
    return pick(truth, {pair for pair in pairs_of(truth) if uniform(seed, *pair) < proportion})


def random_per_image(truth: Labels, proportion: float, seed: int) -> Labels:
    kept = set(pairs_of(truth))
    for image, labels in truth.items():
        dropped = int((1 - proportion) * len(labels))
        kept -= set(smallest([(image, label) for label in labels], dropped, seed))
    return pick(truth, kept)


def fixed_per_class(truth: Labels, per_class: int, seed: int) -> Labels:
    kept: set[tuple[str, str]] = set()
    for label in next(iter(truth.values())):
        positives = smallest([pair for pair in pairs_of(truth, 1) if pair[1] == label], per_class, seed)
        negatives = smallest([pair for pair in pairs_of(truth, 0) if pair[1] == label], len(positives), seed)
        kept |= {*positives, *negatives}
    return pick(truth, kept)


def dropped_positives(truth: Labels, keep: float | str, absent: bool, seed: int) -> Labels:
    kept: Labels = {}
    for image, labels in truth.items():
        positives = [(image, label) for label in labels if labels[label] == 1]
        if keep == "one":
            chosen = smallest(positives, 1, seed)
        else:
            chosen = [pair for pair in positives if uniform(seed, *pair) < keep]
        kept[image] = dict.fromkeys(labels, 0) if absent else {}
        kept[image] |= {label: 1 for _, label in chosen}
    return kept


def positive_fraction(truth: Labels, fraction: float, ratio: float, seed: int) -> Labels:
    everything = pairs_of(truth, 1)
    positives = smallest(everything, round(fraction * len(everything)), seed)
    seen = {image for image, _ in positives}
    beside = [pair for pair in pairs_of(truth, 0) if pair[0] in seen]
    return pick(truth, {*positives, *smallest(beside, round(ratio * len(positives)), seed)})


def budget_exact(truth: Labels, seconds: float, positive: float, negative: float, seed: int) -> Labels:
    kept: set[tuple[str, str]] = set()
    spent = 0.0
    for image, label in smallest(pairs_of(truth), len(pairs_of(truth)), seed):
        spent += positive if truth[image][label] else negative
        if spent > seconds + 1e-6:
            break
        kept.add((image, label))
    return pick(truth, kept)


def hierarchy(truth: Labels, parent_of: dict[str, str], seed: int) -> Labels:
    """For a tree: one parent a class at most."""
    kept: Labels = {}
    for image, labels in truth.items():
        verified: set[str] = set()
        for label, value in labels.items():
            if value == 0 or any(labels[child] for child, parent in parent_of.items() if parent == label):
                continue
            path = [label]
            while path[-1] in parent_of:
                path.append(parent_of[path[-1]])
            stop = math.floor(uniform(seed, image, label) * len(path))
            verified |= set(path[stop:])
        kept[image] = dict.fromkeys(verified, 1)
        for label, value in labels.items():
            if value == 0 and any(parent_of.get(other) == parent_of.get(label) for other in verified):
                kept[image][label] = 0
    return kept


def iterative_stratification(truth: Labels, held_out: int, seed_hash: dict[str, int]) -> set[str]:
    """Images of the smaller subset; `seed_hash` orders images and breaks ties between labels."""
    room = [len(truth) - held_out, held_out]
    share = [room[0] / len(truth), room[1] / len(truth)]
    names = list(next(iter(truth.values())))
    wanted = {label: [part * sum(labels[label] for labels in truth.values()) for part in share] for label in names}
    left = set(truth)
    chosen: set[str] = set()
    while True:
        counts = {label: sum(truth[image][label] for image in left) for label in names}
        counts = {label: count for label, count in counts.items() if count}
        if not counts:
            break
        rarest = min(counts, key=lambda label: (counts[label], seed_hash[label]))
        for image in sorted((image for image in left if truth[image][rarest]), key=seed_hash.__getitem__):
            open_subsets = [subset for subset in (0, 1) if room[subset]]
            subset = max(open_subsets, key=lambda s: (wanted[rarest][s], room[s], -s))
            room[subset] -= 1
            left.remove(image)
            chosen |= {image} if subset else set()
            for label in names:
                wanted[label][subset] -= truth[image][label]
    return chosen | set(sorted(left, key=seed_hash.__getitem__)[: room[1]])
