"""What is trained: the rows of each table, the labels that they learn from, and the order in which they run.

1   one positive label per photo, as BoostLU and SCL have it
2   a fraction of the positives with 1 to 1.5 times as many negatives, and labels verified down a hierarchy (Soft
    Exposure)
3   tags, points and boxes of the same cost (PatchML)
4   Query2Label's head and one layer, with all labels and with one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from material import Material

RATE = 1e-4
"""Of what lies above the cached stage; the head has ten times that."""

OTHER_RATES = (3e-4, 3e-5)
"""Tried with the first seed, after every row has one run; validation chooses."""

SEEDS = 3

EPOCHS = {"1": 5, "2": 4, "3": 6, "4": 4}

BOOST = {"boost": 5.0}
AT_INFERENCE = {**BOOST, "boost_train": False}
IN_TRAINING = {**BOOST, "boost_eval": False}

FRACTIONS = (10, 30, 50)
HIERARCHY = "hierarchy"
SE_METHODS: dict[str, dict[str, Any]] = {
    "ne": {}, "wne": {}, "fe": {}, "ls": {}, "se": {}, "se-l": {}, "se-i": {"uncovered": "ignore"},
}  # fmt: skip

BUDGETS = (5, 2, 10)
WEIGHTS = (0.05, 0.2, 1.0, 5.0, 20.0)
"""Of the cells: tried for points at the first budget, chosen on validation."""

CSL_P = {"patch_unknown": "selective", "k_patch": 25, "patch_weights": [24.0, 1.0, 1.0]}

QUERY = {"name": "query", "rate": 1e-4, "multiplier": 1.0}
"""A transformer wants a smaller rate than one layer does."""


@dataclass(frozen=True)
class Entry:
    """One run.

    Attributes:
        table: its number.
        row: name of the entry.
        at: the column: a fraction, a budget, or nothing.
        data: name of the dataset, for a seed.
        method: or several joined by `+`.
        options: of each method.
        head: its name.
        head_options: its options.
        train: `top` or `head`.
        lr: learning rate above the stage; of a head that trains alone, its own.
        multiplier: rate of the head over that.
        seed: of the order of images, of initial weights and, in tables 2 and 3, of the labels.
        stage: other settings of the stage.
        localize: also score class maps against boxes.
        precision: of the arithmetic.
        rated_as: row and column whose search decides the learning rate; its own if None.
    """

    table: str
    row: str
    at: str
    data: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    head: str = "cam"
    head_options: dict[str, Any] = field(default_factory=dict)
    train: str = "top"
    lr: float = RATE
    multiplier: float = 10.0
    seed: int = 0
    stage: dict[str, Any] = field(default_factory=dict)
    localize: bool = False
    precision: str = "bfloat16"
    rated_as: tuple[str, str] | None = None

    @property
    def epochs(self) -> int:
        """Of every row of its table."""
        return EPOCHS[self.table]

    def key(self) -> dict[str, Any]:
        """What distinguishes it from other runs with the same backbone."""
        settings = {"options": self.options, "epochs": self.epochs, "lr": self.lr}
        return {"row": self.row, "at": self.at, "train": self.train, **settings, "seed": self.seed}


def single_positive(seed: int) -> list[Entry]:
    """Table 1; every inference has its own `full` and `an`."""
    base = Entry("1", "an", "", "single", "an", seed=seed)
    full = replace(base, row="full", data="full", method="bce")
    rows = [full, base]
    for name in ("ll-r", "em", "role", "en", "wan"):
        rows.append(replace(base, row=name, method=name))
    for name, plain in (("ll-r", rows[2]), ("an", base), ("full", full)):
        boosted = replace(plain, row=f"{name}, boost at inference", head_options=AT_INFERENCE)
        rows.append(replace(boosted, rated_as=(name, "")))
    rows.append(replace(rows[2], row="ll-r, boost", head_options=BOOST))
    rows.append(replace(base, row="en+scl", method="en+scl"))
    rows.append(replace(base, row="en+cl", method="en+cl"))
    rows.append(replace(rows[2], row="ll-r, boost in training", head_options=IN_TRAINING))
    rows.append(replace(base, row="an, boost", head_options=BOOST))
    rows.append(replace(full, row="full, boost", head_options=BOOST))
    rows.append(replace(base, row="an, float32", precision="float32", rated_as=("an", "")))
    return rows


def soft_exposure(seed: int) -> list[Entry]:
    """Table 2, by columns; rates are searched at the first fraction and in the hierarchy."""
    found = []
    first = f"{FRACTIONS[0]} %"
    for at in (first, HIERARCHY, *(f"{percent} %" for percent in FRACTIONS[1:])):
        data = f"verified-{seed}" if at == HIERARCHY else f"fraction-{at.split()[0]}-{seed}"
        for name, options in SE_METHODS.items():
            rated_as = None if at in (first, HIERARCHY) else (name, first)
            own = {name: options} if options else {}
            found.append(Entry("2", name, at, data, name, own, seed=seed, rated_as=rated_as))
    return found


def points(seed: int, weight: float) -> list[Entry]:
    """Table 3, by budgets; rates are searched at the first.

    Args:
        seed: of labels and run.
        weight: of the cells.
    """
    found = []
    for percent in BUDGETS:
        for row, kind, options, term in (
            ("I", "I", {}, None),
            ("SP", "SP", {}, None),
            ("SP + PatchCluster", "SP", {}, "patchcluster"),
            ("SP + CSL-P", "SP", CSL_P, None),
            ("AP", "AP", {}, None),
            ("SB", "SB", {}, None),
        ):
            found.append(_point(row, kind, percent, seed, 0.0 if kind == "I" else weight, options, term))
    return found


def weights_of_cells() -> list[Entry]:
    """Points at the first budget with each weight of the cells, among which validation chooses."""
    return [_point(f"SP, weight {weight:g}", "SP", BUDGETS[0], 0, weight, {}, None) for weight in WEIGHTS]


def _point(
    row: str, kind: str, percent: int, seed: int, weight: float, options: dict[str, Any], term: str | None
) -> Entry:
    """Without a term only photos with a label are visited: `patchml` learns nothing from others."""
    return Entry(
        "3", row, f"{percent} %", f"budget-{kind}-{percent}-s{seed}", "patchml" + (f"+{term}" if term else ""),
        {"patchml": {"w_patch": weight, **options}}, seed=seed, stage={} if term else {"labeled_share": 1.0},
        localize=True, rated_as=None if percent == BUDGETS[0] else (row, f"{BUDGETS[0]} %"),
    )  # fmt: skip


def heads(seed: int) -> list[Entry]:
    """Table 4: one layer and Query2Label's head, frozen and with the top, with all labels and with one."""
    found = []
    for at, data, method in (("all labels", "full", "bce"), ("one label", "single", "an")):
        for train in ("top", "head"):
            layer = Entry("4", f"one layer, {train}", at, data, method, seed=seed, train=train)
            found.append(
                replace(layer, lr=RATE if train == "top" else 10 * RATE, multiplier=10.0 if train == "top" else 1.0)
            )
            found.append(replace(layer, row=f"query, {train}", head="query", lr=QUERY["rate"], multiplier=1.0))
    return found


def decides_rate(row: str, at: str) -> tuple[str, str]:
    """Row and column whose search decides the learning rate.

    >>> decides_rate("se", "30 %"), decides_rate("se", "hierarchy")
    (('se', '10 %'), ('se', 'hierarchy'))
    """
    every = [*single_positive(0), *soft_exposure(0), *points(0, 1.0)]
    return next((entry.rated_as for entry in every if (entry.row, entry.at) == (row, at) and entry.rated_as), (row, at))


def make_data(material: Material, name: str) -> None:
    """Make the dataset of an entry if it is not there yet."""
    from boxes import boxed
    from budgets import divided_as
    from groups import grouped

    import tagfill

    parts = name.split("-")
    makers: dict[str, tuple[str, Callable[[tagfill.Dataset], tagfill.Dataset]]] = {
        "fraction": ("full", lambda full: tagfill.protocols.positive_fraction(
            full, fraction=int(parts[1]) / 100, seed=int(parts[2]))),
        "verified": ("groups", lambda groups: tagfill.protocols.hierarchy(groups, seed=int(parts[1]))),
        "budget": ("located", lambda located: boxed(tagfill.protocols.budget(
            located, percent=int(parts[2]), kind=parts[1], seed=int(parts[3][1:])))),
    }  # fmt: skip
    if parts[0] == "verified":
        material.made("groups", grouped, of="full")
    if parts[0] == "budget":
        material.made("located", divided_as(material.open("full")))
    if parts[0] in makers:
        of, protocol = makers[parts[0]]
        material.made(name, protocol, of=of)


def in_order(
    table: str, seeds: int, weight: Callable[[], float], rate: Callable[[Entry], float | None]
) -> Iterator[Entry]:
    """All runs of a table: one of each row, then other rates, then other seeds.

    Args:
        table: its number.
        seeds: of each row, at least 1.
        weight: of the cells, by the runs so far.
        rate: that validation chooses for an entry, by the runs so far; None if other rates are not to be tried.
    """
    if table == "3":
        yield from weights_of_cells()

    def rows(seed: int) -> list[Entry]:
        made = {"1": single_positive, "2": soft_exposure, "4": heads}
        return points(seed, weight()) if table == "3" else made[table](seed)

    yield from rows(0)
    searched = [entry for entry in rows(0) if rate(entry) is not None and entry.rated_as is None]
    for lr in OTHER_RATES:
        yield from (replace(entry, lr=lr * entry.lr / RATE) for entry in searched)
    for seed in range(seeds):
        for entry in rows(seed):
            chosen = rate(entry)
            yield entry if chosen is None else replace(entry, lr=chosen)
