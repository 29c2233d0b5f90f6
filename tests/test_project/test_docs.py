"""What the documentation promises is there."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#([^)\s]+))?\)")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def each_page(check: Callable[[Path], None]) -> Callable[[], None]:
    """One test that runs a check on every page and names the pages that fail."""

    def test() -> None:
        failures = []
        for page in PAGES:
            try:
                check(page)
            except Exception as error:
                failures.append(f"{page.relative_to(ROOT).as_posix()}: {error!r}")
        assert failures == []

    return test


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return [code for found, code in BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


def tagfill_calls(code: str) -> list[ast.Call]:
    """The calls of code that name something in tagfill."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return [call for call in calls if re.fullmatch(r"tagfill(\.\w+)+", ast.unparse(call.func))]


def command_lines(page: Path) -> list[list[str]]:
    """Words of the `tagfill …` lines of a page: those of consoles, and those in running text that have an argument."""
    text = page.read_text(encoding="utf-8")
    shown = [line[2:] for code in blocks(page, "console") for line in code.splitlines() if line.startswith("$ ")]
    inline = re.findall(r"`(tagfill [a-z][^`]*)`", BLOCK.sub("", text).replace("\n", " "))
    words = [shlex.split(line, comments=True) for line in [*shown, *inline]]
    return [line[line.index("tagfill") + 1 :] for line in words if "tagfill" in line]


def rows_of(page: Path, columns: int) -> dict[str, list[str]]:
    """Rows of the tables with so many columns whose first cell is code, by that cell."""
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    return {row[0].strip("`"): row[1:] for row in cells if len(row) == columns}


@each_page
def test_links_lead_to_files(page):
    targets = [target for target, _ in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@each_page
def test_links_lead_to_headings(page):
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if anchor and "://" not in target:
            headings = re.findall(r"^#+ (.+)$", (page.parent / target).read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@each_page
def test_python_calls_what_exists(page):
    for code in blocks(page, "python"):
        for call in tagfill_calls(code):
            names = ast.unparse(call.func).split(".")[1:]
            function = functools.reduce(getattr, names, importlib.import_module("tagfill"))
            given = {word.arg: None for word in call.keywords if word.arg is not None}
            inspect.signature(function).bind(*call.args, **given)


@each_page
def test_command_lines_parse(page):
    commands = typer_commands()
    for words in command_lines(page):
        name, *rest = words
        if name == "--help":
            continue
        assert name in commands, words
        if "…" not in " ".join(rest) and rest:
            commands[name].make_context(name, rest)


@each_page
def test_named_methods_protocols_and_formats_of_command_lines_exist(page):
    protocols = importlib.import_module("tagfill.protocols").PROTOCOLS
    formats = importlib.import_module("tagfill.formats")
    parse_options = importlib.import_module("tagfill.options").parse_options
    for words in command_lines(page):
        options = [value for flag, value in pairwise(words) if flag in ("--option", "-o")]
        if words[0] == "simulate" and words[1:]:
            parse_options(protocols[words[1]], options, words[1])
        elif words[0] == "import" and words[1:] and words[1] not in ("FORMAT", "scenes"):
            parse_options(formats.get(words[1]).read, options, words[1])
        elif words[0] == "train" and "--method" in words and "auto" not in words:
            importlib.import_module("tagfill.methods").create(words[words.index("--method") + 1])


@functools.cache
def typer_commands() -> Mapping[str, Any]:
    """The commands of the command line, by name."""
    typer = importlib.import_module("typer")
    group: Any = typer.main.get_command(importlib.import_module("tagfill.cli.app").app)
    return dict(group.commands)


@each_page
def test_recipes_are_valid(page):
    make_recipe = importlib.import_module("tagfill.training").make_recipe
    create = importlib.import_module("tagfill.methods").create
    for code in blocks(page, "yaml"):
        content = yaml.safe_load(code)
        if "method" in content:
            recipe = make_recipe(content, page.name)
            for stage in recipe.stages:
                create(stage.method or recipe.method, recipe.options if stage.options is None else stage.options)


def test_every_setting_of_a_recipe_is_described_with_its_default():
    recipe = importlib.import_module("tagfill.training.recipe")
    described = {name: row[0] for name, row in rows_of(DOCS / "training.md", columns=3).items()}
    settings = {**dict(settings_of(recipe.Recipe)), **dict(settings_of(recipe.Stage))}
    settings |= {"stages": "one"}
    for both in ("method", "options"):  # of a recipe, and in its place of a stage
        both_rows = re.findall(rf"^\| `{both}` \| (\S+) \|", (DOCS / "training.md").read_text("utf-8"), re.MULTILINE)
        expected = [dict(settings_of(model))[both] for model in (recipe.Recipe, recipe.Stage)]
        assert both_rows == expected
    found = {name: described.get(name) for name in settings}
    assert found == settings | {name: described[name] for name in ("method", "options")}


def settings_of(model: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and defaults of a pydantic model, parts written with a dot."""
    for name, field in model.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            yield from settings_of(field.annotation, f"{prefix}{name}.")
        else:
            default = field.default
            plain = list(default) if isinstance(default, tuple) else default
            text = plain if isinstance(plain, str) else json.dumps(plain, default=str)
            yield prefix + name, "required" if field.is_required() else text


def test_every_format_is_described_with_its_options():
    formats = importlib.import_module("tagfill.formats")
    option_parameters = importlib.import_module("tagfill.options").option_parameters
    read, written = (rows_of(DOCS / "formats.md", columns) for columns in (4, 3))
    readers = {name: formats.get(name).read for name in formats.FORMATS}
    assert set(written) == set(formats.WRITABLE)
    readers["scenes"] = importlib.import_module("tagfill.scenes").make
    assert set(read) == set(readers)
    for name, reader in readers.items():
        shown = dict(option.partition("=")[::2] for option in re.findall(r"`([^`]+)`", read[name][1]))
        assert shown == {option: shown_default(p) for option, p in option_parameters(reader).items()}, name


def test_every_protocol_is_described_with_its_options():
    protocols = importlib.import_module("tagfill.protocols").PROTOCOLS
    page = DOCS / "protocols.md"
    described = rows_of(page, columns=5)
    assert set(described) == set(protocols)
    for name, function in protocols.items():
        options = {option: p for option, p in inspect.signature(function).parameters.items() if option != "data"}
        if name == "budget":
            assert set(options) == set(rows_of(page, columns=3))
            continue
        shown = dict(option.partition("=")[::2] for option in re.findall(r"`([^`]+)`", described[name][0]))
        assert shown == {option: shown_default(p) for option, p in options.items()}, name


def test_every_analysis_is_described_with_its_options():
    analyses = importlib.import_module("tagfill.experiments.analyses").ANALYSES
    option_parameters = importlib.import_module("tagfill.options").option_parameters
    described = rows_of(DOCS / "analyses.md", columns=3)
    assert list(described) == list(analyses)
    for name, function in analyses.items():
        shown = dict(option.partition("=")[::2] for option in re.findall(r"`([^`]+)`", described[name][0]))
        assert shown == {option: shown_default(p) for option, p in option_parameters(function).items()}, name


def shown_default(parameter: inspect.Parameter) -> str:
    """A default as the tables write it: nothing for none, JSON for what is not text."""
    default = parameter.default
    if default in (None, parameter.empty, ""):
        return ""
    if isinstance(default, str):
        return default
    return json.dumps(list(default) if isinstance(default, tuple) else default)


@each_page
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    commands = [line for code in blocks(page, "console") for line in code.splitlines() if line.startswith("$ make ")]
    named = {word for line in commands for word in line.partition("#")[0].split()[2:] if "=" not in word}
    assert named <= targets


def test_every_promise_names_tests_that_exist_and_no_attack_was_missed():
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    rows = [line for line in page.partition("## Results")[0].splitlines() if re.match(r"\| [^w-]", line)]
    named = [re.findall(r"`((?:tests|attacks)/[^`]+|make \w+)`", line.split(" | ")[-1]) for line in rows]
    assert len(rows) > 30
    assert [row for row, tests in zip(rows, named, strict=True) if not tests] == []
    files = {name for tests in named for name in tests if not name.startswith("make ")}
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []
    assert "**missed**" not in page


def test_every_dependency_has_its_line():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (DOCS / "dependencies.md").read_text(encoding="utf-8")
    always, extras = page.split("## Extras")
    listed = set(re.findall(r"^\| `([\w-]+)` \|", always, re.MULTILINE))
    assert listed == {name_of(requirement) for requirement in project["dependencies"]}
    listed_extras = set(re.findall(r"^\| `([\w-]+)` \| `([\w-]+)` \|", extras, re.MULTILINE))
    groups = project["optional-dependencies"]
    assert listed_extras == {(extra, name_of(requirement)) for extra in groups for requirement in groups[extra]}


def name_of(requirement: str) -> str:
    """The package of a requirement."""
    return re.split(r"[<>=\[; ]", requirement)[0]


def test_every_method_is_described_with_its_options():
    methods = importlib.import_module("tagfill.methods").METHODS
    overview = (DOCS / "methods" / "index.md").read_text(encoding="utf-8")
    pages = dict(re.findall(r"^\| `([\w-]+)` \|.*\]\((\S+)\) \|$", overview, re.MULTILINE))
    assert set(pages) == set(methods)
    for name, make in methods.items():
        described = set(
            re.findall(r"^\| `(\w+)` \|", (DOCS / "methods" / pages[name]).read_text("utf-8"), re.MULTILINE)
        )
        assert set(inspect.signature(make).parameters) <= described, name


def test_readme_names_only_existing_methods():
    methods = importlib.import_module("tagfill.methods").METHODS
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| | methods |") :].split("\n\n")[0]
    assert set(re.findall(r"`([\w-]+)`", table)) <= set(methods)


def test_every_head_is_described_with_its_options():
    heads = importlib.import_module("tagfill.models").HEADS
    option_parameters = importlib.import_module("tagfill.options").option_parameters
    page = DOCS / "models.md"
    described, options = rows_of(page, columns=5), rows_of(page, columns=3)
    assert set(described) == set(heads)
    for name, make in heads.items():
        shown = dict(option.partition("=")[::2] for option in re.findall(r"`([^`]+)`", described[name][1]))
        assert shown == {option: shown_default(p) for option, p in option_parameters(make).items()}, name
        assert shown.keys() <= options.keys(), name
