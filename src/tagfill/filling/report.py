"""The report of a result: what was added, how far it can be trusted, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tagfill.curation.estimates import ESTIMATED, MEASURED
from tagfill.errors import TagfillError
from tagfill.experiments.report.page import to_html
from tagfill.experiments.report.section import Gallery, Picture, Section, Table
from tagfill.filling.result import FILLED, MODEL, REPORT, TO_REVIEW, ClassSummary, FillSummary
from tagfill.images import Root, encode_jpeg, open_root, thumbnail
from tagfill.io import atomic_write

_SIDE = 200  # longest side of a photo, in pixels
_MOST_CLASSES = 60  # with photos; the page would become too large to open
_FEW_TAGS = 5  # of a class, below which it is hardly learned


def write(folder: Path, summary: FillSummary) -> None:
    """Write `report.html` from the numbers and the photos.

    Args:
        folder: of the result.
        summary: the numbers.
    """
    sections = [_trust(summary), *_photos(summary), _classes(summary), _next_steps(folder, summary)]
    facts = {
        "tags given": f"{summary.given:,}",
        "tags added": f"{summary.added:,}",
        "expected right": "–" if summary.expected_precision is None else f"{summary.expected_precision:.0%}",
        "of the missing tags": f"{summary.expected_found:.0%}",
        "to review": f"{summary.to_review:,}",
    }
    named = {section.name: section for section in sections}
    page = to_html(named, "Filled-in tags", summary.sentences()[0], facts)
    with atomic_write(folder / REPORT) as file:
        file.write(page.encode())


def _trust(summary: FillSummary) -> Section:
    """How far the result can be trusted."""
    text = []
    if summary.audit is not None:
        text.append("An audit asked a person about random samples. " + ". ".join(summary.audit["statement"]) + ".")
    if summary.estimates.source == MEASURED:
        text.append(
            "Probabilities were measured on photos with complete tags: among tags with a probability of 90 %, nine of "
            "ten were right there."
        )
    elif summary.estimates.source == ESTIMATED:
        text.append(
            "There are no photos with complete tags, so probabilities were estimated from the tags alone: from how "
            "highly models rank tags that were hidden from them. If small or hidden things were tagged less often, "
            "more tags are missing than estimated. An audit measures how many of the added tags are right."
        )
    else:
        text.append(
            "There are too few tags, or they look too much alike, to tell how probable a tag is. Nothing was added; "
            "the list to review begins with what the model considers most likely."
        )
    text.append(f"{summary.estimates}.")
    text.append(f"{summary.doubts}." if summary.doubted else "None of the given tags looks wrong.")
    text += [summary.what_changed()] if summary.past else []
    return Section("trust", "How far it can be trusted", tuple(text))


def _classes(summary: FillSummary) -> Section:
    """A row per class."""
    rows = [
        (
            one.name,
            one.given,
            one.added,
            one.expected_right / one.added if one.added else None,
            round(one.expected_missing),
            min(one.expected_right / one.expected_missing, 1.0) if one.expected_missing > 0 else None,
            one.to_review,
        )
        for one in sorted(summary.classes, key=lambda one: -one.added)
    ]
    table = Table(
        "classes",
        "Tags by class. “Missing” is the expected number of photos that show the class and were not tagged.",
        ("class", "given", "added", "expected right", "missing", "found", "to review"),
        rows,
        formats={"expected right": ".0%", "found": ".0%"},
        bars=("expected right", "found"),
    )
    few = [one.name for one in summary.classes if one.given < _FEW_TAGS]
    notes = []
    if few:
        listed = ", ".join(few[:12]) + (f" and {len(few) - 12} more" if len(few) > 12 else "")
        notes.append(f"Fewer than {_FEW_TAGS} tags are known of {listed}; tag more photos with them to find others.")
    return Section("classes", "By class", tables=(table,), notes=tuple(notes))


def _photos(summary: FillSummary) -> Iterator[Section]:
    """Examples of what was added."""
    shown = [one for one in sorted(summary.classes, key=lambda one: -one.added) if one.examples][:_MOST_CLASSES]
    if not shown:
        return
    try:
        root = open_root(summary.root)
    except TagfillError:
        return
    rows = [(f"{one.name} ({one.added:,})", list(_pictures(root, one))) for one in shown]
    most = max(len(pictures) for _, pictures in rows)
    columns = tuple("most probable" if at == 0 else "least probable" if at == most - 1 else "" for at in range(most))
    gallery = Gallery(
        "added",
        "Photos to which a tag was added, from the most to the least probable one; not selected by quality.",
        [(title, pictures) for title, pictures in rows if pictures],
        columns,
    )
    yield Section("photos", "Examples", galleries=(gallery,))


def _pictures(root: Root, one: ClassSummary) -> Iterator[Picture]:
    for example in one.examples:
        try:
            picture = thumbnail(root, example.image, _SIDE)
        except TagfillError:
            continue
        alt = f"{example.image}, to which {one.name} was added."
        yield Picture(encode_jpeg(picture), alt, f"{example.probability:.0%}")


def _next_steps(folder: Path, summary: FillSummary) -> Section:
    """What to do next."""
    text = [f"`{FILLED}` has every photo with its tags and what was added."]
    if summary.to_review:
        text.append(
            f"`tagfill review {folder}` asks about the {summary.to_review:,} uncertain tags of `{TO_REVIEW}`. Then "
            f"`tagfill fill {folder}` uses the answers."
        )
    if summary.added and summary.audit is None:
        text.append(f"`tagfill audit {folder}` asks about a random sample, and states how many added tags are right.")
    text.append(f"`tagfill predict {folder / MODEL} PHOTOS --out new-tags.csv` tags other photos with the same model.")
    text.append(
        f"`tagfill review {folder} --complete 100` asks for all tags of 100 random photos. With them, probabilities "
        "are measured and no longer estimated."
    )
    return Section("next", "What to do next", tuple(text))
