"""The Typer application with all commands."""

from __future__ import annotations

from typing import Annotated

import typer

import tagfill
from tagfill.cli import (
    add,
    analyze,
    audit,
    budget,
    compare,
    convert,
    demo,
    evaluate,
    export,
    features,
    fill,
    import_,
    inspect,
    list_,
    plan,
    predict,
    report,
    review,
    serve,
    simulate,
    suggest,
    train,
    write,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # two columns, which fit into a narrow terminal
    pretty_exceptions_enable=False,
)


def _plain(text: str | None) -> str:
    """The docstring of a command without the marks of Markdown."""
    return (text or "").replace("`", "")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tagfill {tagfill.__version__}")
        raise typer.Exit


@app.callback(help="Train multi-label image classifiers from partly labeled images, and fill in the missing labels.")
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


app.command("fill", help=_plain(fill.__doc__))(fill.fill)
app.command("demo", help=_plain(demo.__doc__))(demo.demo)
app.command("import", help=_plain(import_.__doc__))(import_.import_)
app.command("add", help=_plain(add.__doc__))(add.add)
app.command("write", help=_plain(write.__doc__))(write.write)
app.command("inspect", help=_plain(inspect.__doc__))(inspect.inspect)
app.command("simulate", help=_plain(simulate.__doc__))(simulate.simulate)
app.command("features", help=_plain(features.__doc__))(features.features)
app.command("train", help=_plain(train.__doc__))(train.train)
app.command("evaluate", help=_plain(evaluate.__doc__))(evaluate.evaluate)
app.command("predict", help=_plain(predict.__doc__))(predict.predict)
app.command("export", help=_plain(export.__doc__))(export.export)
app.command("convert", help=_plain(convert.__doc__))(convert.convert)
app.command("compare", help=_plain(compare.__doc__))(compare.compare)
app.command("report", help=_plain(report.__doc__))(report.report)
app.command("budget", help=_plain(budget.__doc__))(budget.budget)
app.command("suggest", help=_plain(suggest.__doc__))(suggest.suggest)
app.command("review", help=_plain(review.__doc__))(review.review)
app.command("audit", help=_plain(audit.__doc__))(audit.audit)
app.command("plan", help=_plain(plan.__doc__))(plan.plan)
app.command("serve", help=_plain(serve.__doc__))(serve.serve)
app.command("analyze", help=_plain(analyze.__doc__))(analyze.analyze)
app.command("analyse", help=_plain(analyze.__doc__), hidden=True)(analyze.analyze)  # the name in version 0.1
app.command("list", help=_plain(list_.__doc__))(list_.list_)
