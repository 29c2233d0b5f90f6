"""Test mAP of methods with and without evidence, on cached features of whole photos.

Of two rates, each row has the one with the better mean on validation over all seeds; every row has the same head,
features and epochs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bookkeeping import say

EPOCHS = 10
RATES = (1e-3, 3e-4)
ROWS: dict[str, dict[str, Any]] = {
    "evidence": {"method": "evidence"},
    "em": {"method": "em"},
    "vlpl": {"method": "vlpl"},
    "an": {"method": "an"},
    "bce, complete labels": {"method": "bce", "data": "full"},
    "gr": {"method": "gr"},
    "splc": {"method": "splc"},
    "se-e": {"method": "se-e"},
    "auto": {"method": "auto", "rates": (1e-3,)},
    "auto, without evidence": {"method": "auto", "rates": (1e-3,), "data": "plain"},
    "auto, complete labels": {"method": "auto", "rates": (1e-3,), "data": "full"},
}
WITH_EVIDENCE = ("vlpl", "se-e", "evidence", "auto")


def learn(work: Path, cache: Path, draw: Callable[[int], Any], seeds: int, rows: list[str] | None = None) -> Any:
    """Test mAP of each row and seed, and the rate of each row."""
    found: dict[str, Any] = {}
    for name in rows or ROWS:
        tried = {
            rate: [score(work, cache, draw, name, rate, seed) for seed in range(seeds)]
            for rate in ROWS[name].get("rates", RATES)
        }
        rate = max(tried, key=lambda one: sum(run["val"] for run in tried[one]))
        scores = [run["test"] for run in tried[rate]]
        found[name] = {"rate": rate, "test": scores, "val": [run["val"] for run in tried[rate]]}
        say(f"{name}: {rate:g} {[round(one, 2) for one in scores]}")
    return found


def score(work: Path, cache: Path, draw: Callable[[int], Any], name: str, rate: float, seed: int) -> dict[str, float]:
    """Validation and test mAP of one training; read if it was made before."""
    import shutil

    import torch

    import tagfill
    from tagfill.io import write_json

    record = work / "scores" / f"learning-{name.replace(',', '').replace(' ', '-')}-{rate:g}-{seed}.json"
    if record.exists():
        return json.loads(record.read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    row = ROWS[name]
    data = tagfill.Dataset.open(work / "data" / "full") if row.get("data") == "full" else draw(seed)
    if row.get("data") == "plain":
        data = data.replace(folder=None).save(work / "data" / f"plain-{seed}")
    folder = work / "runs" / record.stem
    shutil.rmtree(folder, ignore_errors=True)
    run = tagfill.train(
        data, method=row["method"], options=row.get("options", {}), features=cache, epochs=EPOCHS, lr=rate,
        seed=seed, expected_positives=1.5 if row["method"] not in WITH_EVIDENCE else None, out=folder,
    )  # fmt: skip
    test = 100 * tagfill.evaluate(run, data, split="test", features=cache).mean
    found = {"val": float(run.best["val_mAP"]), "test": float(test)}
    shutil.rmtree(folder, ignore_errors=True)
    record.parent.mkdir(parents=True, exist_ok=True)
    write_json(record, found)
    return found
