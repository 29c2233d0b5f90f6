"""Results with one known label per image: on scenes and, if they were run, on VOC 2012 and COCO 2014.

    <!-- numbers: single-positive an,en,en+scl -->

Names are those of the rows of published tables: `full` for complete labels, `ll-r+boost` for BoostLU, and so on. A dash
means that the benchmark has no such row.
"""

from __future__ import annotations

from filling.results import gain, mean, results, table

FLOOR = "an"
ON_SCENES = {
    "full": "full labels",
    "full+boost": "full labels + boost",
    "full+boost-eval": "full labels + boost at inference",
    "bce-ls": "bce-ls, full labels",
    "an+boost": "an + boost",
    "an+boost-eval": "an + boost at inference",
    "ll-r+boost": "ll-r + boost",
    "ll-r+boost-eval": "ll-r + boost at inference",
    "ll-ct+boost": "ll-ct + boost",
    "ll-cp+boost": "ll-cp + boost",
}
ON_PHOTOS = {
    "ignore": "ne",
    "full+boost": "full, boost",
    "full+boost-eval": "full, boost at inference",
    "bce-ls+boost-eval": "bce-ls, boost at inference",
    "an+boost": "an, boost",
    "an+boost-eval": "an, boost at inference",
    "ll-r+boost": "ll-r, boost",
    "ll-r+boost-eval": "ll-r, boost at inference",
    "ll-r+boost-train": "ll-r, boost in training",
    "ll-ct+boost": "ll-ct, boost",
    "ll-cp+boost": "ll-cp, boost",
    "role-linear-init": "role, two stages",
}


def single_positive(arguments: str, top: str) -> str:
    """The table and the source of its numbers."""
    names = arguments.split(",")
    measured = {"scenes, mAP": on_scenes(), "VOC 2012, mAP": on_photos()}
    coco = on_coco()
    with_coco = 2 * sum(name in coco for name in names) >= len(names)  # a column of dashes says nothing
    measured |= {"COCO 2014, mAP": coco} if with_coco else {}
    columns = [_scores(names, title, scores) for title, scores in measured.items() if scores]
    head = ["method", *(cell for title, _ in columns for cell in (title, "gain over `an`"))]
    rows = [[_shown(name), *(cell for _, cells in columns for cell in cells[name])] for name in names]
    return f"{table(head, rows)}\n\n{_legend(top, any('+boost' in name for name in names), with_coco)}"


def on_scenes() -> dict[str, list[float]]:
    """Test mAP per seed by method; empty if not measured."""
    found = results("learning")
    return _renamed(found["scores"], ON_SCENES) if found else {}


def on_photos() -> dict[str, list[float]]:
    """The same on VOC 2012, without methods that refused the data."""
    found = results("voc12-a")
    return _renamed({row["name"]: row["test"] for row in found["rows"] if "test" in row}, ON_PHOTOS) if found else {}


def on_coco() -> dict[str, list[float]]:
    """The same on all photos of COCO 2014 train, each model without and with boost at inference."""
    found = results("coco14-a")
    rows = [row for row in found["rows"] if "test" in row] if found else []
    plain, boosted = ({row["name"]: row[key] for row in rows} for key in ("test", "boosted"))
    return plain | {f"{name}+boost-eval": values for name, values in boosted.items()} if FLOOR in plain else {}


def _renamed(scores: dict[str, list[float]], there: dict[str, str]) -> dict[str, list[float]]:
    ours = {name: own for own, name in there.items()}
    return {ours.get(name, name): values for name, values in scores.items()}


def _scores(names: list[str], title: str, scores: dict[str, list[float]]) -> tuple[str, dict[str, list[str]]]:
    """Mean and gain of each name; dashes if there is none."""
    cells = {
        name: [mean(scores[name]), "–" if name == FLOOR else gain(scores[name], scores[FLOOR][: len(scores[name])])]
        if name in scores
        else ["–", "–"]
        for name in names
    }
    return title, cells


def _shown(name: str) -> str:
    """A name as the table has it; complete labels are named as such.

    >>> _shown("full+boost-eval"), _shown("en")
    ('`bce+boost-eval`, complete labels', '`en`')
    """
    base, plus, boost = name.partition("+")
    complete = {"full": "bce", "bce-ls": "bce-ls"}.get(base)
    return f"`{complete}{plus}{boost}`, complete labels" if complete else f"`{name}`"


def _legend(top: str, boosted: bool, with_coco: bool) -> str:
    scenes, voc = results("learning"), results("voc12-a")
    said = [
        "One known label per image and no known negative; test mAP in percent; gains are paired by seed, ± is the",
        "standard error of their mean.",
    ]
    if boosted:
        said.append("A boost helps with complete labels too: compare entries with the same boost.")
    if scenes:
        said.append(
            f"[Scenes]({top}benchmarks/learning.md): {scenes['sizes']['train']} rendered images, {scenes['seeds']} "
            "seeds, every method with its defaults."
        )
    if voc:
        seeds = max(len(row.get("test", ())) for row in voc["rows"])
        said.append(
            f"[VOC 2012]({top}benchmarks/voc12.md): photos, one draw of labels, {seeds} seeds, learning rates "
            "chosen on validation."
        )
    else:
        said.append("Not measured on photos yet.")
    if with_coco:
        page = f"[COCO 2014]({top}benchmarks/coco14.md)"
        found = on_coco()
        seeds = len(found[FLOOR])
        drawn = "one draw of labels, one seed" if seeds == 1 else f"another draw of labels for each of {seeds} seeds"
        said.append(f"{page}: 66,081 photos with 80 classes, {drawn}.")
    return "\n".join(said)
