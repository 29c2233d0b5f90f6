"""Audit added tags: precision and recall with intervals, from decisions about a random sample.

Example: `tagfill audit filled`

Example: `tagfill audit photos --predictions predictions.parquet --added 200 --left-out 300`

A page asks about sampled pairs, one at a time. `Ctrl-C` ends it and prints the result, which is also written to
`audit.json`; the same command continues.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, review_page, terminal
from tagfill.errors import TagfillError


def audit(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder, or a folder that holds one as `dataset`.")],
    source: Annotated[
        str | None, typer.Option(help="Audit tags from rows with this source, such as `review`; `fill` by default.")
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Audit the present labels of this .parquet file of `tagfill predict` instead.")
    ] = None,
    added: Annotated[int, typer.Option(min=1, help="Number of questions about added tags.")] = 120,
    left_out: Annotated[int, typer.Option(min=0, help="Number of questions about pairs that were left out.")] = 120,
    seed: flags.Seed = 0,
    run: review_page.Run = None,
    reviewer: review_page.Reviewer = None,
    host: review_page.Host = "127.0.0.1",
    port: review_page.Port = 8317,
    token: flags.Token = None,
    browser: review_page.Browser = True,
    as_json: flags.Json = False,
) -> None:
    """Audit."""
    from tagfill.curation.audit import FILE, draw_sample
    from tagfill.curation.review import AUDIT, open_session
    from tagfill.dataset import Dataset
    from tagfill.io import write_json

    if source is not None and predictions is not None:
        raise TagfillError("Give --source or --predictions, not both; they name two ways in which tags are added.")
    filled = flags.filled_folder(dataset)
    if filled:
        run = run or filled / "model"
    inside = dataset / "dataset"
    data = Dataset.open(inside if (inside / "dataset.yaml").is_file() else dataset)
    page = review_page.open_page(host, port, token, run, reviewer, browser)
    source = source or "fill" if predictions is None else None
    if filled and source == "fill" and source not in set(data.rows()["source"].to_pylist()):
        raise TagfillError(f"Nothing was added in {filled}, so nothing can be audited; try 'tagfill review {filled}'.")
    sample = draw_sample(data, source=source, predictions=predictions, added=added, left_out=left_out, seed=seed)
    with open_session(data, sample.questions(), source=AUDIT) as session:
        page.serve(
            session, f"{len(session.suggestions):,} questions", task="audit", progress=terminal.progress(quiet=False)
        )
        result = sample.result(session)
    path = dataset / FILE
    write_json(path, result.to_json())
    if filled:
        from tagfill.filling import Fill  # loads torch, which the page does not need

        Fill.open(filled).add_audit(result.to_json())
    if as_json:
        terminal.show_json({"file": str(path), **result.to_json()})
        return
    for sentence in result.sentences():
        terminal.show(sentence)
    if result.added.unanswered or result.left_out.unanswered:
        terminal.show("Continue with the same command")
    terminal.show(str(path))
    terminal.next_step(f"tagfill review {filled}" if filled else f"tagfill train {dataset}")
