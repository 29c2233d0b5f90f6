"""Probabilities of unknown labels, by enumerating every set of labels that an image may have."""

from itertools import product


def beside_drawn(probabilities, drawn, wanted):
    """P(label `wanted` is present | label `drawn` was drawn among those present), with independent labels."""
    both = once = 0.0
    for present in product((0, 1), repeat=len(probabilities)):
        if not present[drawn]:
            continue
        weight = 1.0 / sum(present)
        for p, there in zip(probabilities, present, strict=True):
            weight *= p if there else 1 - p
        once += weight
        both += weight * present[wanted]
    return both / once


def of_unknown(p, given, absent_given):
    """Bayes' rule for a label that nobody gave."""
    present, absent = p * (1 - given), (1 - p) * (1 - absent_given)
    return present / (present + absent)


def drawn(probabilities, tag):
    """P(label `tag` is drawn among those present | any is present)."""
    once = some = 0.0
    for present in product((0, 1), repeat=len(probabilities)):
        weight = 1.0
        for p, there in zip(probabilities, present, strict=True):
            weight *= p if there else 1 - p
        some += weight * any(present)
        once += weight * present[tag] / max(sum(present), 1)
    return once / some


def kept(probabilities, labels, given, absent_given):
    """P(these labels are known, and the others are not | any is known), labels kept one by one."""
    found = nothing = 0.0
    for present in product((0, 1), repeat=len(probabilities)):
        weight = lost = 1.0
        for p, there, label, q in zip(probabilities, present, labels, given, strict=True):
            rate = q if there else absent_given
            weight *= (p if there else 1 - p) * (1 - rate if label < 0 else rate * (label == there))
            lost *= (p if there else 1 - p) * (1 - rate)
        found, nothing = found + weight, nothing + lost
    return found / (1 - nothing)
