"""What each of the five papers claims, as comparisons between rows, with the paper's own gain where it prints one.

Gains are in points of mAP: of BoostLU and SCL on VOC 2012, of Soft Exposure on COCO panoptic with its knowledge graph,
of PatchML on COCO with a DeiT at 2 %. Soft Exposure's fractions are a figure without numbers. Query2Label and MLSPL as
the fifth paper reproduces them, both on COCO; neither table has a row without the method.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One row is better than another.

    Attributes:
        text: what is claimed, without the column.
        table: of both rows.
        row: the better one.
        base: the other one.
        at: column.
        paper: gain in the paper; None if it prints none.
        key: what is compared, `test` or `loc`.
    """

    text: str
    table: str
    row: str
    base: str
    at: str = ""
    paper: float | None = None
    key: str = "test"

    @property
    def place(self) -> str:
        """Where it is claimed, to follow the text; empty if the table has no columns.

        >>> Claim("SE beats NE", "2", "se", "ne", "hierarchy").place
        'in the hierarchy'
        """
        if not self.at or "%" in self.at:
            return self.at and f"at {self.at}"
        return "in the hierarchy" if self.at == "hierarchy" else f"with {self.at}"


AN = {
    "full": 89.42 - 85.89, "role": 87.77 - 85.89, "em": 89.09 - 85.89, "ll-r": 88.27 - 85.89,
    "ll-r, boost": 89.29 - 85.89, "an, boost at inference": 87.31 - 86.10, "an, boost": 86.73 - 86.10,
    "ll-r, boost in training": 87.18 - 86.10, "ll-r, boost at inference": 88.90 - 86.10, "wan": 86.4 - 86.0,
    "en": 88.1 - 86.0, "en+cl": 88.3 - 86.0, "en+scl": 88.8 - 86.0,
}  # fmt: skip
"""Gains over AN on VOC 2012: in BoostLU's tables; for WAN, EN and what is added to it, in that of SCL."""

GRAPH = {"ne": 57.70, "wne": 59.25, "fe": 60.12, "ls": 63.47, "se-i": 63.71, "se-l": 64.56, "se": 64.91}
"""Test mAP of Soft Exposure's knowledge graph."""

OVER_TAGS = {
    "SP": (63.29 - 60.57, 38.74 - 32.89), "SB": (61.45 - 60.57, 34.95 - 32.89),
}  # fmt: skip
"""PatchML at 2 %: gains over tags in mAP-cls and mAP-loc."""

OVER_POINTS = {"SP + CSL-P": 63.61 - 63.41, "SP + PatchCluster": 65.1 - 63.41, "AP": 63.52 - 63.41}
"""PatchML at 2 %: gains over SP in mAP-cls."""

CLAIMS: dict[str, list[Claim]] = {
    "BoostLU (Kim et al., CVPR 2023)": [
        Claim("LL-R beats AN", "1", "ll-r", "an", paper=88.27 - 85.89),
        Claim("a boost at inference helps AN", "1", "an, boost at inference", "an", paper=87.31 - 86.10),
        Claim("a boost at inference helps LL-R", "1", "ll-r, boost at inference", "ll-r", paper=88.90 - 88.24),
        Claim("LL-R gains more from boosting in training too", "1", "ll-r, boost", "ll-r, boost at inference",
              paper=89.27 - 88.90),
        Claim("a boost in training and at inference helps AN less than one at inference", "1",
              "an, boost at inference", "an, boost", paper=87.31 - 86.73),
        Claim("a boost in training alone harms LL-R", "1", "ll-r", "ll-r, boost in training", paper=88.24 - 87.18),
    ],
    "SCL (WACV 2023)": [
        Claim("EN beats AN", "1", "en", "an", paper=88.1 - 86.0),
        Claim("CL adds to EN", "1", "en+cl", "en", paper=88.3 - 88.1),
        Claim("SCL adds to EN", "1", "en+scl", "en", paper=88.8 - 88.1),
        Claim("SCL adds more than CL", "1", "en+scl", "en+cl", paper=88.8 - 88.3),
        Claim("WAN beats AN", "1", "wan", "an", paper=86.4 - 86.0),
    ],
    "Soft Exposure": [
        *(Claim("SE beats NE", "2", "se", "ne", at, paper)
          for at, paper in (("10 %", None), ("30 %", None), ("50 %", None), ("hierarchy", 64.91 - 57.70))),
        *(Claim("SE beats FE", "2", "se", "fe", at, paper)
          for at, paper in (("10 %", None), ("30 %", None), ("50 %", None), ("hierarchy", 64.91 - 60.12))),
        Claim("SE beats SE-L", "2", "se", "se-l", "hierarchy", 64.91 - 64.56),
        Claim("SE beats LS", "2", "se", "ls", "hierarchy", 64.91 - 63.47),
    ],
    "PatchML": [
        *(Claim("points beat tags of the same cost in mAP-cls", "3", "SP", "I", at,
                OVER_TAGS["SP"][0] if at == "2 %" else None) for at in ("2 %", "5 %", "10 %")),
        *(Claim("points beat tags of the same cost in mAP-loc", "3", "SP", "I", at,
                OVER_TAGS["SP"][1] if at == "2 %" else None, "loc")
          for at in ("2 %", "5 %", "10 %")),
        *(Claim("points beat boxes of the same cost", "3", "SP", "SB", at,
                63.29 - 61.45 if at == "2 %" else None) for at in ("2 %", "5 %", "10 %")),
        *(Claim("PatchCluster adds to points", "3", "SP + PatchCluster", "SP", at,
                OVER_POINTS["SP + PatchCluster"] if at == "2 %" else None) for at in ("2 %", "5 %", "10 %")),
        *(Claim("CSL-P adds to points", "3", "SP + CSL-P", "SP", at,
                OVER_POINTS["SP + CSL-P"] if at == "2 %" else None) for at in ("2 %", "5 %", "10 %")),
    ],
    "Query2Label and MLSPL (the fifth paper reproduces both)": [
        *(Claim(f"Query2Label's head beats one layer {how}", "4", f"query, {train}", f"one layer, {train}", at)
          for how, train in (("with the top trained", "top"), ("on frozen features", "head"))
          for at in ("all labels", "one label")),
        Claim("ROLE beats AN", "1", "role", "an", paper=AN["role"]),
    ],
}  # fmt: skip
