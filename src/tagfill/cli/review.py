"""Review suggestions, or all tags of some photos, on a local web page.

Example: `tagfill review filled`

Example: `tagfill review photos --suggestions suggestions.parquet --run runs/photos-en`

Example: `tagfill review photos --complete 100 --run runs/photos-en`

Example: `tagfill review photos --apply`

Each decision becomes a new row of the dataset. With `--complete`, photos whose tags are all known move to a split of
complete labels; the same command continues after an interruption.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tagfill.cli import flags, review_page, terminal
from tagfill.errors import TagfillError

if TYPE_CHECKING:
    from tagfill.curation.complete import Completion


def review(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder, or a folder of `tagfill fill`.")],
    suggestions: Annotated[Path | None, typer.Option(help="File of `tagfill suggest` or `tagfill predict`.")] = None,
    complete: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Ask for all tags of N random training photos.")
    ] = None,
    split: Annotated[str, typer.Option(help="With --complete: the split that complete photos move to.")] = "val",
    seed: Annotated[int | None, typer.Option(min=0, help="With --complete: seed of the draw; 0 by default.")] = None,
    run: review_page.Run = None,
    reviewer: review_page.Reviewer = None,
    host: review_page.Host = "127.0.0.1",
    port: review_page.Port = 8317,
    token: flags.Token = None,
    browser: review_page.Browser = True,
    apply: Annotated[
        bool, typer.Option("--apply", help="Only save the decisions of an interrupted review as rows.")
    ] = False,
    as_json: flags.Json = False,
) -> None:
    """Review."""
    from tagfill.curation import Suggestions
    from tagfill.curation.complete import Completion
    from tagfill.curation.review import apply_log, open_session
    from tagfill.dataset import Dataset

    if filled := flags.filled_folder(dataset):
        dataset = filled / "known"
        run = run or filled / "model"
        suggestions = suggestions or (filled / "to-review.csv" if complete is None else None)
    data = Dataset.open(dataset)
    if apply:
        _show(dataset, apply_log(data), as_json)
        return
    if suggestions is None and complete is None:
        raise TagfillError(
            "There is nothing to review; give a file of 'tagfill suggest' to --suggestions, or a number of photos to "
            "--complete."
        )
    page = review_page.open_page(host, port, token, run, reviewer, browser)
    found = Suggestions.empty() if suggestions is None else Suggestions.read(suggestions, data)
    wanted = None if complete is None else Completion(complete, split, seed)
    with open_session(data, found, complete=wanted) as session:
        before = len(session.log.entries)
        asked = len(session.suggestions)
        what = f"{asked:,} suggestions" if wanted is None else f"All tags of {len(session.photos):,} photos"
        page.serve(session, what, progress=terminal.progress(quiet=False))
        decided = len(session.log.entries) - before
    _show(dataset, decided, as_json, wanted, session.photos)
    if filled:
        step = f"tagfill fill {filled}"
    else:
        step = f"tagfill train {dataset}" if wanted is None else f"tagfill evaluate RUN {dataset} --split {split}"
    terminal.next_step(step, quiet=as_json or not decided)


def _show(
    dataset: Path, changes: int, as_json: bool, wanted: Completion | None = None, photos: Sequence[str] = ()
) -> None:
    from tagfill.curation.complete import count_complete
    from tagfill.dataset import Dataset

    summary: dict[str, object] = {"dataset": str(dataset), "changes": changes}
    lines = [f"{changes:,} decisions and undos saved to {dataset}"]
    if wanted is not None:
        complete = count_complete(Dataset.open(dataset), set(photos))
        summary |= {"split": wanted.split, "photos": len(photos), "complete": complete}
        lines.append(f"{complete:,} of {len(photos):,} photos are complete; they are the split '{wanted.split}'")
        if complete < len(photos):
            lines.append("Continue with the same command")
    if as_json:
        terminal.show_json(summary)
        return
    for line in lines:
        terminal.show(line)
