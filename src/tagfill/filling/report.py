"""The report of a result: what was added or may be missing, how far it can be trusted, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tagfill.curation.estimates import ESTIMATED, MEASURED, NOT_CALIBRATED
from tagfill.errors import TagfillError
from tagfill.experiments.report.page import to_html
from tagfill.experiments.report.section import Gallery, Picture, Section, Table
from tagfill.filling.summary import FILLED, MODEL, REPORT, TO_REVIEW, ClassSummary, Example, FillSummary
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
    trust, classes, steps = _trust(summary), _classes(summary), _next_steps(folder, summary)
    photos = [*_photos(summary)]
    sections = [trust, *photos, classes, steps] if summary.added else [steps, *photos, classes, trust]
    facts = {"tags given": f"{summary.given:,}", "tags added": f"{summary.added:,}"}
    if summary.expected_precision is not None:
        facts |= {
            "expected right": f"{summary.expected_precision:.0%}",
            "missing tags found": f"{summary.expected_found:.0%}",
        }
    elif summary.estimates.source != NOT_CALIBRATED:
        facts |= {"expected missing": f"{summary.expected_missing:,.0f}", "surest suggestion": _percent(summary.surest)}
    facts["to review"] = f"{summary.to_review:,}"
    named = {section.name: section for section in sections}
    page = to_html(named, "Filled-in tags", summary.sentences()[0], facts)
    with atomic_write(folder / REPORT) as file:
        file.write(page.encode())


def _sources(weights: Mapping[str, float]) -> str:
    """Where the scores come from, in a sentence.

    >>> _sources({"model": 0.8, "prior": 0.2})
    'Of each score, 80% comes from the model and 20% from what an ImageNet classifier sees and the names of tags mean.'
    """
    own, *others = weights.items()
    told = {"prior": "what an ImageNet classifier sees and the names of tags mean"}
    parts = [f"{share:.0%} from {told.get(name, f'the evidence {name}')}" for name, share in others]
    return f"Of each score, {own[1]:.0%} comes from the model and {' and '.join(parts)}."


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
        audit = " An audit measures how many of the added tags are right." if summary.added else ""
        text.append(
            "There are no photos with complete tags, so probabilities were estimated from the tags alone: from how "
            "highly models rank tags that were hidden from them. If small or hidden things were tagged less often, "
            f"more tags are missing than estimated.{audit}"
        )
    else:
        text.append(
            "There are too few tags, or they look too much alike, to tell how probable a tag is. The list to review "
            "begins with what the model considers most likely."
        )
    text.append(f"{summary.estimates}.")
    if summary.weights:
        text.append(_sources(summary.weights))
    text.append(f"{summary.doubts}." if summary.doubted else "None of the given tags looks wrong.")
    text += [summary.what_changed()] if summary.past else []
    return Section("trust", "How far it can be trusted", tuple(text))


def _classes(summary: FillSummary) -> Section:
    """A row per class; without the columns about added tags if there are none."""
    columns: tuple[str, ...] = ("class", "given", "added", "expected right", "missing", "found", "to review")
    rows: list[tuple[str | float | None, ...]] = [
        (
            one.name,
            one.given,
            one.added,
            one.expected_right / one.added if one.added else None,
            round(one.expected_missing),
            min(one.expected_right / one.expected_missing, 1.0) if one.expected_missing > 0 else None,
            one.to_review,
        )
        for one in sorted(summary.classes, key=lambda one: (-one.added, -one.to_review))
    ]
    about_added = ("expected right", "found")
    if not summary.added:
        kept = [at for at, name in enumerate(columns) if name not in ("added", *about_added)]
        columns, rows = tuple(columns[at] for at in kept), [tuple(row[at] for at in kept) for row in rows]
    table = Table(
        "classes",
        "Tags by class. “Missing” is the expected number of photos that show the class and were not tagged.",
        columns,
        rows,
        formats={name: ".0%" for name in about_added if name in columns},
        bars=tuple(name for name in about_added if name in columns),
    )
    few = [one.name for one in summary.classes if one.given < _FEW_TAGS]
    notes = []
    if few:
        listed = ", ".join(few[:12]) + (f" and {len(few) - 12} more" if len(few) > 12 else "")
        notes.append(f"Fewer than {_FEW_TAGS} tags are known of {listed}; tag more photos with them to find others.")
    return Section("classes", "By class", tables=(table,), notes=tuple(notes))


def _photos(summary: FillSummary) -> Iterator[Section]:
    """Examples of what was added, or of what comes closest to it."""
    try:
        root = open_root(summary.root)
    except TagfillError:
        return
    if summary.added:
        title, last = "Examples", "least probable"
        caption = "Photos to which a tag was added, from the most to the least probable one; not selected by quality."
        shown = [(one, one.added, one.examples) for one in sorted(summary.classes, key=lambda one: -one.added)]
    else:
        title, last = "The surest suggestions", ""
        caption = (
            "Photos that were not tagged with a class and show it most probably. Nothing was added to them: a review "
            "decides. The number is that of questions about the class."
        )
        by_surest = sorted(summary.classes, key=lambda one: -max((each.probability for each in one.surest), default=0))
        shown = [(one, one.to_review, one.surest) for one in by_surest]
    calibrated = summary.estimates.source != NOT_CALIBRATED
    shown = [(one, count, examples) for one, count, examples in shown if examples][:_MOST_CLASSES]
    rows = [(f"{one.name} ({count:,})", _pictures(root, one, examples, calibrated)) for one, count, examples in shown]
    rows = [(name, pictures) for name, pictures in rows if pictures]
    if rows:
        most = max(len(pictures) for _, pictures in rows)
        columns = ("most probable", *[""] * (most - 2), last)[:most]
        yield Section("photos", title, galleries=(Gallery("photos", caption, rows, columns),))


def _pictures(root: Root, one: ClassSummary, examples: Sequence[Example], calibrated: bool) -> list[Picture]:
    found = []
    for example in examples:
        try:
            picture = thumbnail(root, example.image, _SIDE)
        except TagfillError:
            continue
        claim = f"to which {one.name} was added" if one.added else f"which may show {one.name}"
        note = _percent(example.probability) if calibrated else ""  # a score is not a probability
        found.append(Picture(encode_jpeg(picture), f"{example.image}, {claim}.", note))
    return found


def _percent(probability: float) -> str:
    """A probability as text; nothing is certain.

    >>> _percent(0.884), _percent(0.997)
    ('88%', '>99%')
    """
    return f"{probability:.0%}" if probability < 0.995 else ">99%"


def _next_steps(folder: Path, summary: FillSummary) -> Section:
    """What to do next."""
    review = (
        f"`tagfill review {folder}` asks about the {summary.to_review:,} uncertain tags of `{TO_REVIEW}`. Then "
        f"`tagfill fill {folder}` uses the answers."
    )
    complete = (
        f"`tagfill review {folder} --complete 100` asks for all tags of 100 random photos. With them, probabilities "
        "are measured and no longer estimated."
    )
    predict = f"`tagfill predict {folder / MODEL} PHOTOS --out new-tags.csv` tags other photos with the same model."
    if summary.added:
        text = [f"`{FILLED}` has every photo with its tags and what was added."]
        text += [review] if summary.to_review else []
        if summary.audit is None:
            text.append(
                f"`tagfill audit {folder}` asks about a random sample, and states how many added tags are right."
            )
        return Section("next", "What to do next", (*text, predict, complete))
    text = [
        f"No tag was added, because none is sure enough for `--keep {summary.settings.keep}`. That is common with a "
        f"few hundred tags; `{FILLED}` has only the tags that were given. Any of these helps:"
    ]
    text += [review] if summary.to_review else []
    text.append("More tags: add them to the table, 10 or more per class, and run the same command again.")
    if (lower := summary.lower_keep()) is not None:
        text.append(f"`tagfill fill {folder} --keep {lower}` adds what is less sure; it takes a few seconds.")
    return Section("next", "What to do next", (*text, complete, predict))
