"""Train a classifier, from flags or from a recipe, or resume a run.

Example: `tagfill train photos --out runs/photos`

Example: `tagfill train scenes-sp --method en+scl --features scenes-features --epochs 15 --out runs/en-scl`

Example: `tagfill train photos --train top --method ll-r --epochs 8 --out runs/top`

Example: `tagfill train --recipe spml-voc12 --row ll-r+boost --device cuda --out runs/ll-r-boost`

Example: `tagfill train --recipe spml-voc12 --row ll-r+boost --dry-run`

Example: `tagfill train --resume runs/en-scl`
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError
from tagfill.options import parse_settings

if TYPE_CHECKING:
    from tagfill.experiments.recipes import RecipeFile
    from tagfill.training import Recipe


def train(
    dataset: Annotated[Path | None, typer.Argument(help="A dataset folder.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="A recipe file, or a name from `tagfill list recipes`; flags override its settings."),
    ] = None,
    row: Annotated[str | None, typer.Option(help="Row of a recipe with several rows.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Run folder to continue.")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="`auto`, or see `tagfill list methods`; add terms with `+`.", show_default="auto"),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Name of a timm model.", show_default="tf_efficientnet_lite0")
    ] = None,
    pretrained: Annotated[
        str | None,
        typer.Option(
            help="Weights: `bundled`, `timm` (from its hub), `none`, or a safetensors file.", show_default="bundled"
        ),
    ] = None,
    image_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Side of the square input, or HEIGHTxWIDTH as in 224x320.",
            show_default="the backbone's",
        ),
    ] = None,
    head: Annotated[str | None, typer.Option(help="See `tagfill list heads`.", show_default="cam")] = None,
    boost: flags.Boost = None,
    boost_train: Annotated[bool | None, typer.Option(help="Boost in training.")] = None,
    boost_eval: Annotated[bool | None, typer.Option(help="Boost in validation and evaluation.")] = None,
    features: Annotated[Path | None, typer.Option(help="Train on this feature cache instead of images.")] = None,
    what: Annotated[
        str | None,
        typer.Option(
            "--train",
            help="`head`, `top` (what lies above a stage of the backbone, from a cache of it) or `all`.",
            show_default="head",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="STAGE",
            help="Stage of the backbone above which `--train top` trains.",
            show_default="that of --features, or the last but one",
        ),
    ] = None,
    cache: flags.Cache = True,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs per stage.", show_default="10")] = None,
    cross_fit_epochs: Annotated[
        bool,
        typer.Option(
            "--cross-fit-epochs", help="Choose how many of these epochs to train, by cross-fitting on known tags."
        ),
    ] = False,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Learning rate; of the head, ten times this with `--train top`.", show_default="0.001, of top 0.0001"
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per step, over all processes.", show_default="16")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all random draws.", show_default="0")] = None,
    val_labels: Annotated[
        str | None,
        typer.Option(
            help="Validation labels that choose the best epoch: `clean`, `observed` or `tags`.", show_default="clean"
        ),
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile backbone and head with torch.compile; needs a C++ compiler.")
    ] = False,
    memory_budget: Annotated[
        float | None,
        typer.Option(metavar="GB", help="Memory limit of per-image state, per process.", show_default="8"),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other setting of the recipe, by its path; repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default a descriptive name in runs/.")] = None,
    device: flags.Device = "auto",
    processes: Annotated[int, typer.Option(min=1, help="Processes that train in parallel on this machine.")] = 1,
    workers: flags.Workers = 0,
    reshard: Annotated[
        bool,
        typer.Option("--reshard", help="Resume with another number of processes, from the end of an epoch."),
    ] = False,
    save_minutes: Annotated[float, typer.Option(min=0.01, help="Minutes between checkpoints.")] = 5.0,
    save_steps: Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints, besides minutes.")] = None,
    force: flags.Force = False,
    continue_: Annotated[
        bool, typer.Option("--continue", help="Continue the run in --out if it has begun; for jobs that are restarted.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only print the settings with all defaults, and where they come from; without --row, of all rows.",
        ),
    ] = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Train."""
    from tagfill import experiments, training
    from tagfill.curation.submissions import apply_submissions
    from tagfill.dataset import Dataset
    from tagfill.dataset.validation import require_valid
    from tagfill.training.run_folder import default_name

    saving = training.Saving(every_steps=save_steps, every_minutes=save_minutes)
    progress = terminal.progress(quiet)
    if resume is not None:
        if dataset is not None or recipe is not None:
            raise TagfillError("--resume continues a run with its own settings; leave out the dataset and the recipe.")
        if dry_run:
            raise TagfillError(f"A run has its settings in {resume / 'recipe.yaml'}; leave out --dry-run.")
        run = training.resume(
            resume,
            processes=processes,
            device=device,
            workers=workers,
            reshard=reshard,
            saving=saving,
            progress=progress,
        )
    else:
        if row is not None and recipe is None:
            raise TagfillError("--row needs a --recipe.")
        given = {
            "dataset": None if dataset is None else str(dataset.absolute()),
            "method": method,
            "backbone": backbone,
            "pretrained": None if pretrained is None else flags.parse_pretrained(pretrained),
            "head": head,
            "image_size": image_size,
            "at": at,
            "batch_size": batch_size,
            "seed": seed,
            "val_labels": val_labels,
            "compile": True if compiled else None,
        }
        given = {name: value for name, value in given.items() if value is not None}
        head_options = {
            "boost_train": boost_train,
            "boost_eval": boost_eval,
            **(flags.parse_boost(boost) if boost else {}),
        }
        head_options = {name: value for name, value in head_options.items() if value is not None}
        budget = [] if memory_budget is None else [f"memory.budget_gb={memory_budget}"]
        overrides = parse_settings([*budget, *(setting or [])])

        def build(content: dict[str, Any]) -> Recipe:
            """Settings of a recipe, or of none, with those of this command."""
            content |= given
            content["head_options"] = content.get("head_options", {}) | head_options
            if "dataset" not in content:
                raise TagfillError(
                    "There is no dataset to train on; give its folder, a --recipe with one, or a run to --resume."
                )
            content.setdefault("method", "auto")
            return training.build_recipe(
                content, features=features, epochs=epochs, lr=lr, train=what, overrides=overrides
            )

        file = experiments.recipes.open_recipe(recipe) if recipe else None

        def of_row(name: str | None) -> dict[str, Any]:
            return file.settings(name, seed=seed or 0) if file else {}

        if dry_run:
            rows = list(file.published.rows) if file and file.published and row is None else [row]
            _show_settings(file, {name or "": build(of_row(name)) for name in rows}, as_json)
            if file is not None and file.published is not None:
                chosen = row or next(iter(file.published.rows))
                terminal.next_step(f"tagfill train --recipe {recipe} --row {chosen}", quiet=quiet or as_json)
            return
        made = build(of_row(row))
        apply_submissions(Path(made.dataset), progress=progress)
        data = Dataset.open(made.dataset)
        if continue_ and (out is None or force):
            raise TagfillError("--continue needs --out, and cannot be combined with --force.")
        training.check_start(made, out=out, device=device, force=force or continue_)
        require_valid(data, progress=progress)  # before features are computed
        if cache and recipe is None:  # a recipe says itself what its stages train on
            made = training.cache_features(
                data, made, device=device, workers=workers, processes=processes, progress=progress
            )
        if cross_fit_epochs:
            folds = Path(f"{out or Path('runs') / default_name(data, made)}-folds")
            made = training.cross_fit_epochs(data, made, folds, device=device, workers=workers, progress=progress)
        common: dict[str, Any] = {"processes": processes, "device": device, "workers": workers}
        common |= {"saving": saving, "progress": progress}
        if continue_ and out is not None:
            run = training.start_or_resume(data, made, out=out, **common)
        else:
            run = training.start(data, made, out=out, force=force, **common)
    if as_json:
        terminal.show_json({"run": str(run.folder), **run.best})
    else:
        best = run.best
        score = f", AUC of known tags {best['val_AUC']:.2f}" if "val_AUC" in best else ""
        score = f", val mAP {best['val_mAP']:.2f}" if "val_mAP" in best else score
        terminal.show(f"{run.folder}: best epoch {best['epoch']}{score}")
    data_folder = Path(run.folder, run.recipe.dataset)
    given_features = f" --features {run.recipe.final_features}" if run.recipe.final_features else ""
    terminal.next_step(
        f"tagfill evaluate {run.folder} {data_folder}{given_features}",
        f"tagfill predict {run.folder} PHOTOS --out predictions.csv",
        f"tagfill suggest {data_folder} --run {run.folder} --out suggestions.csv",
        quiet=quiet or as_json,
    )


def _show_settings(file: RecipeFile | None, recipes: Mapping[str, Recipe], as_json: bool) -> None:
    """Print the resolved settings of each row, their sources, and the differences from the paper."""
    from tagfill.experiments.recipes import shared
    from tagfill.training import make_recipe
    from tagfill.training.resolved import resolved_settings, setting_text

    settings = {row: resolved_settings(recipe) for row, recipe in recipes.items()}
    sources: dict[str, dict[str, str]] = {}
    for row, values in settings.items():
        sources[row] = {}
        if file is not None and file.published is not None:
            own = resolved_settings(make_recipe(file.settings(row)))
            sources[row] = {path: source for path, source in file.sources(row).items() if path in values}
            sources[row] |= {path: "this command" for path, value in values.items() if own.get(path) != value}
    departures = file.departures() if file is not None else []
    if as_json:
        rows = {
            row: {"dataset": recipes[row].dataset, "settings": values, "sources": sources[row]}
            for row, values in settings.items()
        }
        terminal.show_json({"rows": rows, "departures": departures})
        return

    def source(row: str, path: str) -> str:
        if file is None or file.published is None:
            return ""
        return sources[row].get(path) or file.source(row, path) or "not mentioned"  # and off

    lines = {
        row: {"dataset": (recipes[row].dataset, "")}
        | {path: (setting_text(value), source(row, path)) for path, value in values.items()}
        for row, values in settings.items()
    }
    common = shared(lines)
    title = file.name if file is not None else "settings"
    if len(lines) == 1 and (only := next(iter(lines))):
        title = f"{title}, row {only}"
    if common:
        terminal.show_table(title, ["setting", "value", "source"], [[path, *line] for path, line in common.items()])
    for row, found in lines.items():
        own_lines = [[path, *line] for path, line in found.items() if path not in common]
        if own_lines:
            terminal.show_table(f"{title}, row {row}", ["setting", "value", "source"], own_lines)
    if departures:
        terminal.show("Differences from the paper, and our choices:\n" + "\n".join(f"- {text}" for text in departures))
