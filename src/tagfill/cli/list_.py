"""List methods, recipes, heads, protocols, formats or analyses.

Example: `tagfill list methods`

Example: `tagfill list recipes spml-voc12`
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError, unknown_name
from tagfill.options import option_parameters


def list_(
    what: Annotated[str, typer.Argument(help="`methods`, `recipes`, `heads`, `protocols`, `formats` or `analyses`.")],
    name: Annotated[str | None, typer.Argument(help="A recipe, to show its rows and commands.")] = None,
    as_json: flags.Json = False,
) -> None:
    """List."""
    tables = {
        "methods": _methods,
        "recipes": _recipes,
        "heads": _heads,
        "protocols": _protocols,
        "formats": _formats,
        "analyses": _analyses,
    }
    if what not in tables:
        raise unknown_name("list", what, tables)
    if name is not None:
        if what != "recipes":
            raise TagfillError(f"A name can be given for recipes only; 'tagfill list {what}' lists all {what}.")
        _show_recipe(name, as_json)
        return
    rows = tables[what]()
    if as_json:
        terminal.show_json(rows)
        return
    shown = ("name", "table", "seeds", "best") if what == "recipes" else ("name", "about", "paper", "needs", "options")
    columns = [column for column in shown if column in rows[0]]
    terminal.show_table(what, columns, [[_cell(row[column]) for column in columns] for row in rows])
    terminal.next_step(_NEXT_STEPS[what])


_NEXT_STEPS = {
    "methods": "tagfill train DATASET --method NAME",
    "recipes": "tagfill list recipes NAME",
    "heads": "tagfill train DATASET --head NAME",
    "protocols": "tagfill simulate NAME DATASET --out DIR",
    "formats": "tagfill import NAME SRC --out DIR",
    "analyses": "tagfill analyze NAME RUN",
}


_ABOUT_AUTO = "Recommended and the default: methods that suit the labels, combined into one model."


def _methods() -> list[dict[str, Any]]:
    from tagfill.methods import ALIASES, METHODS
    from tagfill.training.auto import AUTO

    rows = [_describe_method(name, make) for name, make in METHODS.items()]
    auto = {"name": AUTO, "about": _ABOUT_AUTO, "paper": "–", "needs": [], "options": {}}
    return [auto, *rows] + [
        {**row, "name": alias, "about": f"Alias of {name}.", "alias_of": name}
        for alias, name in ALIASES.items()
        for row in rows
        if row["name"] == name
    ]


def _describe_method(name: str, make: Any) -> dict[str, Any]:
    """Description with the paper of a method and its needs."""
    method, row = make(), _describe(name, make)
    options = row.pop("options")
    return {**row, "paper": method.paper, "needs": sorted(method.needs), "options": options}


def _recipes() -> list[dict[str, Any]]:
    from tagfill.experiments import recipes

    return [_describe_recipe(name) for name in recipes.names()]


def _describe_recipe(name: str) -> dict[str, Any]:
    """A recipe's published table and its best number."""
    from tagfill.experiments import recipes

    file = recipes.open_recipe(name)
    if file.published is None:
        raise TagfillError(f"The recipe {name} does not reproduce a published table, so there are no rows to show.")
    best = file.published.best()
    return {
        "name": name,
        **file.published.model_dump(),
        "paper": file.published.paper or "–",
        "table": file.published.table or "–",
        "best": f"{best[0]}: {best[1]:g}" if best else "–",
        "file": str(file.path),
    }


def _show_recipe(name: str, as_json: bool) -> None:
    """Print the rows of a recipe, and the commands from the published data to a score."""
    from tagfill.experiments import recipes

    found = _describe_recipe(name)
    if as_json:
        terminal.show_json(found)
        return
    rows = [[row, _numbers(content["reported"]), "not trained"] for row, content in found["untrained"].items()]
    rows += [[row, _numbers(content["reported"]), _cell(content["set"])] for row, content in found["rows"].items()]
    paper = " – ".join(text for text in (found["paper"], found["table"]) if text != "–")
    terminal.show(f"{found['about']}\n{paper}\n{found['hardware']}; settings and deviations: {found['file']}")
    terminal.show_table(name, ["row", "reported", "settings"], rows)
    commands, seeds = found["data"], found["seeds"]
    train = f"tagfill train --recipe {name} --row {rows[-1][0]} --out RUN"
    scored = [command for content in found["untrained"].values() for command in content["commands"]]
    if seeds > 1:
        again = any(recipes.SEED in command for command in commands)
        drawn = f"; labels are drawn again for each, {recipes.SEED}" if again else f", {recipes.SEED}"
        terminal.show(f"Numbers are means over {seeds} seeds{drawn} = {', '.join(map(str, range(seeds)))}.")
        train += f" --seed {recipes.SEED}"
    terminal.show("\n".join([*commands, *scored, train, *found["evaluate"]]))


def _numbers(reported: float | dict[str, float] | None) -> str:
    if isinstance(reported, dict):
        return ", ".join(f"{name} {number:g}" for name, number in reported.items())
    return "" if reported is None else f"{reported:g}"


def _heads() -> list[dict[str, Any]]:
    from tagfill.models import HEADS

    return [_describe(name, make) for name, make in HEADS.items()]


def _protocols() -> list[dict[str, Any]]:
    from tagfill.protocols import PROTOCOLS

    return [_describe(name, make) for name, make in PROTOCOLS.items()]


def _analyses() -> list[dict[str, Any]]:
    from tagfill.experiments.analyses import ANALYSES

    return [_describe(name, make) for name, make in ANALYSES.items()]


def _formats() -> list[dict[str, Any]]:
    from tagfill import formats, scenes

    rows = [{**_describe(name, formats.get(name).read), "about": formats.get(name).TITLE} for name in formats.FORMATS]
    return [*rows, {**_describe("scenes", scenes.make), "about": "the embedded dataset"}]


def _describe(name: str, make: Any) -> dict[str, Any]:
    """Name, first line of the documentation, and options with their defaults."""
    defaults = {
        option: None if parameter.default is parameter.empty else parameter.default
        for option, parameter in option_parameters(make).items()
    }
    return {"name": name, "about": (inspect.getdoc(make) or "").partition("\n")[0], "options": defaults}


def _cell(value: Any) -> str:
    """Text of a table cell; lists and options are joined by commas."""
    if isinstance(value, dict):
        return ", ".join(_option(*item) for item in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)


def _option(name: str, default: Any) -> str:
    return name if default is None else f"{name}={default}"
