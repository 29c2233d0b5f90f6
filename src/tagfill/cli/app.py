"""The Typer application with all commands."""

from __future__ import annotations

from typing import Annotated

import typer

import tagfill
from tagfill.cli import (
    add,
    analyze,
    budget,
    compare,
    convert,
    demo,
    evaluate,
    export,
    features,
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
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


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


app.command("demo", help=demo.__doc__)(demo.demo)
app.command("import", help=import_.__doc__)(import_.import_)
app.command("add", help=add.__doc__)(add.add)
app.command("write", help=write.__doc__)(write.write)
app.command("inspect", help=inspect.__doc__)(inspect.inspect)
app.command("simulate", help=simulate.__doc__)(simulate.simulate)
app.command("features", help=features.__doc__)(features.features)
app.command("train", help=train.__doc__)(train.train)
app.command("evaluate", help=evaluate.__doc__)(evaluate.evaluate)
app.command("predict", help=predict.__doc__)(predict.predict)
app.command("export", help=export.__doc__)(export.export)
app.command("convert", help=convert.__doc__)(convert.convert)
app.command("compare", help=compare.__doc__)(compare.compare)
app.command("report", help=report.__doc__)(report.report)
app.command("budget", help=budget.__doc__)(budget.budget)
app.command("suggest", help=suggest.__doc__)(suggest.suggest)
app.command("review", help=review.__doc__)(review.review)
app.command("plan", help=plan.__doc__)(plan.plan)
app.command("serve", help=serve.__doc__)(serve.serve)
app.command("analyze", help=analyze.__doc__)(analyze.analyze)
app.command("analyse", help=analyze.__doc__, hidden=True)(analyze.analyze)  # the name in version 0.1
app.command("list", help=list_.__doc__)(list_.list_)
