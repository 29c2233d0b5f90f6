"""Evidence on the command line."""

import json

import pyarrow as pa
import pyarrow.csv as pacsv

from evidence.cases import CLASSES, make_dataset, make_scores, make_truth

IMAGES = 30


def test_evidence_is_imported_listed_and_evaluated(tmp_path, call):
    data = make_dataset(tmp_path / "data", make_truth(IMAGES))
    scores = make_scores(make_truth(IMAGES))
    names = [f"{number}.jpg" for number in range(IMAGES)]
    table = pa.table({"image": names, **dict(zip(CLASSES, scores.T, strict=True))})
    pacsv.write_csv(table, tmp_path / "scores.csv")
    folder = str(data.folder)
    done = call("evidence", "import", str(tmp_path / "scores.csv"), folder, "--name", "clip", "--scale", "cosines")
    assert (done.code, f"Next: tagfill evidence evaluate {folder}" in done.err) == (0, True)
    assert json.loads(call("evidence", "list", folder, "--json").out)[0]["scores"] == scores.size
    shown = json.loads(call("evidence", "evaluate", folder, "--name", "clip", "--json").out)
    assert shown["labels"] == "known, unknown taken as absent"
    assert 0.3 < shown["mAP"] <= 1
    refused = call("evidence", "import", str(tmp_path / "scores.csv"), folder, "--name", "clip", "--scale", "odds")
    assert (refused.code, "--scale is 'odds'" in refused.err) == (2, True)
