"""Settings of every row of every published table, with their sources and the differences from the paper.

<!-- numbers: settings -->

Tables of one paper that have the same rows for several datasets share a section. Settings are listed by the rows that
have them and by their source, so that each is there once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tagfill.experiments import recipes
from tagfill.training.resolved import setting_text

Line = tuple[str, str, str]  # setting, value and source
ORIGINS = {"the paper": r"§|Table|Figure|Fig\.|eq\.|rebuttal", "code or other papers": r"(?!ours$)", "ours": r"ours$"}
DATASETS = r",? on (?:MS-COCO 2014|PASCAL VOC 2012|NUS-WIDE|CUB-200-2011(?: attributes)?)"


@dataclass(frozen=True)
class Family:
    """Recipes of one paper with the same rows, usually for several datasets."""

    files: tuple[recipes.RecipeFile, ...]

    @property
    def first(self) -> recipes.Published:
        """What the first recipe says about its table."""
        return published_of(self.files[0])

    @property
    def heading(self) -> str:
        """Tables of the paper and names of the recipes."""
        tables = dict.fromkeys(str(published_of(file).table) for file in self.files)
        return f"{', '.join(tables)}: {', '.join(f'`{file.name}`' for file in self.files)}"

    @cached_property
    def lines(self) -> dict[str, dict[str, Line]]:
        """The used settings of each row, with the dataset where values differ."""
        return {row: self._lines(row) for row in self.first.rows}

    @cached_property
    def order(self) -> list[str]:
        """Paths of all settings, in the order in which a recipe has them."""
        return list(dict.fromkeys(path for lines in self.lines.values() for path in lines))

    def _lines(self, row: str) -> dict[str, Line]:
        values: dict[str, dict[str, list[str]]] = {}
        sources: dict[str, list[str]] = {}
        for file in self.files:
            for path, value in file.used_settings(row).items():
                values.setdefault(path, {}).setdefault(setting_text(value), []).append(_dataset(file.name))
                sources.setdefault(path, []).append(file.sources(row).get(path, "–"))
        found = {}
        for path, datasets in values.items():
            alike = len(datasets) == 1 and len(sources[path]) == len(self.files)
            texts = datasets if alike else [f"{value} ({', '.join(where)})" for value, where in datasets.items()]
            found[path] = (path, ", ".join(texts), ", ".join(dict.fromkeys(sources[path])))
        return found


def settings(arguments: str, top: str) -> str:
    """An overview of all tables, then a section for each paper."""
    papers: dict[str, list[Family]] = {}
    for family in families():
        papers.setdefault(str(family.first.paper), []).append(family)
    for of_paper in papers.values():
        of_paper.sort(key=lambda family: family.heading.lower())
    parts = [overview(papers)]
    for paper, of_paper in papers.items():
        parts += [f"## {paper}", *(section(family) for family in of_paper)]
    return "\n\n".join(parts)


def families() -> list[Family]:
    """All published recipes; those that differ in the last part of their name and have the same rows are joined."""
    found: dict[tuple[object, ...], list[recipes.RecipeFile]] = {}
    for name in (name for name in recipes.names() if not name.startswith("cpu/")):
        file = recipes.open_recipe(name)
        about = published_of(file)
        found.setdefault((about.paper, name.rpartition("-")[0], tuple(about.rows)), []).append(file)
    return [Family(tuple(files)) for files in found.values()]


def published_of(file: recipes.RecipeFile) -> recipes.Published:
    """The block `published` of a recipe that has one."""
    assert file.published is not None
    return file.published


def overview(papers: dict[str, list[Family]]) -> str:
    """How many settings each table takes from where."""
    lines = []
    for paper, of_paper in papers.items():
        for family in of_paper:
            every = {line[::2] for lines in family.lines.values() for line in lines.values()}
            counts = Counter(origin(source) for _, source in every)
            title = f"[{family.heading.replace('`', '')}](#{anchor(family.heading)})"
            numbers = [str(counts[name]) for name in ORIGINS]
            lines.append([re.split(r", |: ", paper)[0], title, *numbers, str(len(departures(family)))])
    return table(["paper", "table: recipes", *ORIGINS, "differences"], lines, numbers=4)


def section(family: Family) -> str:
    """One table of a paper, or the same table for several datasets."""
    about = family.first
    titles = [published_of(file).about for file in family.files]
    title = titles[0] if len(titles) == 1 else "; ".join(dict.fromkeys(re.sub(DATASETS, "", one) for one in titles))
    runs = "one run" if about.seeds == 1 else f"the mean of {about.seeds} runs"
    empty = "counts as 0" if about.metric.empty == "zero" else "is skipped"
    return "\n\n".join(
        [
            f"### {family.heading}",
            f"{title}. Scored on the split `{about.metric.split}` with average precision "
            f"`{about.metric.average_precision}`; a class without a positive {empty}; {runs}.",
            reported(family),
            table(["rows", "source", "settings"], by_rows(family)),
            "Differences from the paper, and our choices:",
            "\n".join(f"- {text}" for text in departures(family)),
        ]
    )


def by_rows(family: Family) -> list[list[str]]:
    """The settings by the rows that have them and by their source; those of all rows first."""
    places: dict[Line, list[str]] = {}
    for row, lines in family.lines.items():
        for line in lines.values():
            places.setdefault(line, []).append(row)
    together: dict[tuple[tuple[str, ...], str], list[Line]] = {}
    for line in sorted(places, key=lambda line: family.order.index(line[0])):
        together.setdefault((tuple(places[line]), line[2]), []).append(line)
    every, origins = list(family.lines), list(ORIGINS)

    def rank(group: tuple[tuple[str, ...], str]) -> tuple[bool, int, int, list[int], int]:
        rows, source = group
        positions = [every.index(row) for row in rows]
        return len(rows) < len(every), positions[0], -len(rows), positions, origins.index(origin(source))

    found: list[list[str]] = []
    before = None
    for rows, source in sorted(together, key=rank):
        told = "; ".join(f"`{path}` {value}" for path, value, _ in together[rows, source])
        found.append(
            [
                "" if rows == before else names_of(rows, every),
                f"**{source}**" if source == recipes.OURS else source,
                told,
            ]
        )
        before = rows
    return found


def names_of(rows: Sequence[str], every: Sequence[str]) -> str:
    """Some of all rows, in words.

    >>> every = ["full", "an", "em", "ll-r"]
    >>> names_of(every, every), names_of(every[:3], every), names_of(every[:1], every)
    ('all', 'all except `ll-r`', '`full`')
    """
    others = [row for row in every if row not in rows]
    if not others:
        return "all"
    few, begin = (others, "all except ") if 2 * len(others) < len(rows) else (rows, "")
    return begin + ", ".join(f"`{row}`" for row in starred(few, every))


def starred(rows: Sequence[str], every: Iterable[str]) -> list[str]:
    """Names of rows, where those that differ in one number and are all there become one name with a star.

    >>> starred(["i-1", "i-2", "sp-1"], ["i-1", "i-2", "sp-1", "sp-2"])
    ['i-*', 'sp-1']
    """
    whole, here = Counter(map(_star, every)), Counter(map(_star, rows))
    return list(dict.fromkeys(_star(row) if here[_star(row)] == whole[_star(row)] > 1 else row for row in rows))


def _star(row: str) -> str:
    return re.sub(r"-[\d.]+(?=$|[-+])", "-*", row, count=1)


def reported(family: Family) -> str:
    """The paper's numbers in percent, with a column per dataset, per measure or per budget."""
    rows = family.first.rows
    numbers: dict[str, dict[str, float | None]] = {row: {} for row in rows}
    for file in family.files:
        for row, content in published_of(file).rows.items():
            value, column = content.reported, _dataset(file.name) if len(family.files) > 1 else "reported"
            numbers[row] |= value if isinstance(value, dict) else {column: value}
    if all(value is None for values in numbers.values() for value in values.values()):
        return "The paper prints no numbers for these rows."
    for row, untrained in family.first.untrained.items():
        assert isinstance(untrained.reported, dict)
        numbers = {f"{row} (not trained)": dict(untrained.reported), **numbers}
    if all("reported" in values for values in numbers.values()) and all("*" in _star(row) for row in rows):
        numbers = _by_budget({row: values["reported"] for row, values in numbers.items()})
    columns = list(dict.fromkeys(column for values in numbers.values() for column in values))
    every = [value for values in numbers.values() for value in values.values() if value is not None]
    digits = 1 if all(round(value, 1) == value for value in every) else 2
    lines = [[f"`{row}`", *(_number(values.get(of), digits) for of in columns)] for row, values in numbers.items()]
    notes = [f"`{row}`: {content.note}." for row, content in rows.items() if content.note]
    return "\n\n".join([table(["row", *columns], lines, numbers=len(columns)), " ".join(notes)]).strip()


def _by_budget(numbers: dict[str, float | None]) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {}
    for row, value in numbers.items():
        number = re.search(r"-([\d.]+)(?=$|[-+])", row)
        assert number is not None
        found.setdefault(_star(row), {})[f"\\* = {number[1]}"] = value
    return found


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def departures(family: Family) -> list[str]:
    """Differences from the paper: those of all recipes, then those of some with their names."""
    by_text: dict[str, list[str]] = {}
    for file in family.files:
        for text in file.departures():
            by_text.setdefault(text, []).append(file.name)
    of_all = [text for text, names in by_text.items() if len(names) == len(family.files)]
    of_some = {text: names for text, names in by_text.items() if text not in of_all}
    return of_all + [f"{', '.join(f'`{name}`' for name in names)}: {text}" for text, names in of_some.items()]


def _dataset(recipe: str) -> str:
    return recipe.rpartition("-")[2]


def origin(source: str) -> str:
    """Where a source belongs in the overview.

    >>> origin("§4.1"), origin("code of Cole et al."), origin("ours")
    ('the paper', 'code or other papers', 'ours')
    """
    return next(name for name, pattern in ORIGINS.items() if re.match(pattern, source))


def anchor(heading: str) -> str:
    """The name of a heading in links.

    >>> anchor("Table 1: `scl-cub`, `scl-nus`")
    'table-1-scl-cub-scl-nus'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    """A table whose last columns are numbers."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join([f"| {' | '.join(head)} |", f"|{'|'.join(rule)}|", *(f"| {' | '.join(row)} |" for row in rows)])
