"""The Typer application with all commands."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import tagfill
from tagfill.cli import (
    add,
    analyze,
    audit,
    browse,
    budget,
    compare,
    convert,
    demo,
    evaluate,
    evidence,
    export,
    features,
    fill,
    import_,
    inspect,
    label_studio,
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


class _Command(TyperCommand):
    """A command that shows its first example if an argument is missing."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        try:
            return super().make_context(*args, **options)
        except typer.BadParameter as error:
            example = re.search("Example: (.+)", self.help or "")
            if example and not error.message:  # it was not given at all
                error.message = f"For example: {example[1]}"
            raise


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


app.command("fill", cls=_Command, help=_plain(fill.__doc__))(fill.fill)
app.command("demo", cls=_Command, help=_plain(demo.__doc__))(demo.demo)
app.command("import", cls=_Command, help=_plain(import_.__doc__))(import_.import_)
app.command("add", cls=_Command, help=_plain(add.__doc__))(add.add)
app.command("write", cls=_Command, help=_plain(write.__doc__))(write.write)
app.command("inspect", cls=_Command, help=_plain(inspect.__doc__))(inspect.inspect)
app.command("browse", cls=_Command, help=_plain(browse.__doc__))(browse.browse)
app.command("simulate", cls=_Command, help=_plain(simulate.__doc__))(simulate.simulate)
app.command("features", cls=_Command, help=_plain(features.__doc__))(features.features)
app.command("train", cls=_Command, help=_plain(train.__doc__))(train.train)
app.command("evaluate", cls=_Command, help=_plain(evaluate.__doc__))(evaluate.evaluate)
app.command("predict", cls=_Command, help=_plain(predict.__doc__))(predict.predict)
app.command("export", cls=_Command, help=_plain(export.__doc__))(export.export)
app.command("convert", cls=_Command, help=_plain(convert.__doc__))(convert.convert)
app.command("compare", cls=_Command, help=_plain(compare.__doc__))(compare.compare)
app.command("report", cls=_Command, help=_plain(report.__doc__))(report.report)
app.command("budget", cls=_Command, help=_plain(budget.__doc__))(budget.budget)
app.command("suggest", cls=_Command, help=_plain(suggest.__doc__))(suggest.suggest)
app.command("review", cls=_Command, help=_plain(review.__doc__))(review.review)
app.command("audit", cls=_Command, help=_plain(audit.__doc__))(audit.audit)
app.command("plan", cls=_Command, help=_plain(plan.__doc__))(plan.plan)
app.command("serve", cls=_Command, help=_plain(serve.__doc__))(serve.serve)
app.command("analyze", cls=_Command, help=_plain(analyze.__doc__))(analyze.analyze)
app.command("analyse", cls=_Command, help=_plain(analyze.__doc__), hidden=True)(analyze.analyze)  # of version 0.1
app.add_typer(evidence.app, name="evidence", help=_plain(evidence.__doc__))
app.add_typer(label_studio.app, name="label-studio", help=_plain(label_studio.__doc__))
app.command("list", cls=_Command, help=_plain(list_.__doc__))(list_.list_)
