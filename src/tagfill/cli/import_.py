"""Import a dataset from another format.

Example: `tagfill import scenes --out scenes`

Example: `tagfill import tags tags.csv --photos photos --out my-data`

Example: `tagfill import voc VOCdevkit --out voc`

The format `scenes` renders the embedded dataset and reads nothing.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, inspect, terminal
from tagfill.cli.running import name_flags
from tagfill.errors import TagfillError, TagfillWarning
from tagfill.io import new_folder
from tagfill.options import option_parameters, parse_options, require_options


def import_(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="See `tagfill list formats`.")],
    sources: Annotated[list[Path] | None, typer.Argument(metavar="[SRC]…", help="Files or folders to read.")] = None,
    out: Annotated[Path, typer.Option(help="Dataset folder to create.")] = ...,  # type: ignore[assignment]
    photos: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the photos are: a folder, shards or a URL.")
    ] = None,
    absent_means: Annotated[
        str | None, typer.Option(help="Meaning of labels that are not marked present: `unknown` or `absent`.")
    ] = None,
    given: flags.Options = None,
    seed: flags.Seed = 0,
    force: flags.Force = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Import."""
    from tagfill import formats, scenes
    from tagfill.dataset import Dataset
    from tagfill.scenes.make import is_interrupted

    texts = [*(given or []), *([f"absent_means={absent_means}"] if absent_means else [])]
    problems: list[dict[str, str]] = []
    progress = terminal.progress(quiet)
    rendering = format_ == "scenes" and is_interrupted(out)
    with new_folder(out, "is importing a dataset", force=force or rendering, task=flags.task()):
        if format_ == "scenes":
            if sources or photos:
                raise TagfillError("`tagfill import scenes` renders its own images; leave out the source and --photos.")
            scenes.make(out, seed=seed, progress=progress, **parse_options(scenes.make, texts, "format 'scenes'"))
        else:
            what = f"format '{format_}'"
            read = formats.get(format_).read
            if photos is not None:
                if "root" not in option_parameters(read):
                    raise TagfillError(f"The {what} says itself where its photos are; leave out --photos.")
                texts.append(f"root={photos}")
            values = parse_options(read, texts, what)
            if not sources:
                raise TagfillError(f"There is nothing to read; give a source: tagfill import {format_} SRC --out DIR.")
            require_options(read, values, what)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", TagfillWarning)
                dataset = read(*sources, progress=progress, **values)
            said = (name_flags(str(warning.message), ["absent_means", "option"]) for warning in caught)
            problems = [{"severity": "warning", "problem": sentence} for sentence in said]
            dataset.save(out)
        saved = Dataset.open(out)
        problems += [{**problem, "severity": "warning"} for problem in inspect.missing_photos(saved)]
        inspect.show(saved, problems, as_json=as_json)
        terminal.next_step(*inspect.next_steps(saved, out), quiet=quiet or as_json)
