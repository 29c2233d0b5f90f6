from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset.cases import dataset, varied
from tagfill.dataset import SCHEMA
from tagfill.dataset.tables import RowSpool

ROWS = pa.concat_tables([varied().rows()] * 50)


def spooled(lots, **options):
    spool = RowSpool(**options)
    for rows in lots:
        spool.add(rows)
    return spool.close()


def test_few_rows_stay_in_memory():
    found = spooled(ROWS.to_batches(max_chunksize=7))

    assert isinstance(found, pa.Table)
    assert str(found.to_pylist()) == str(ROWS.to_pylist())  # text, because NaN is not equal to itself


@pytest.mark.parametrize("in_memory", [0, 2000])
def test_many_rows_go_to_a_file_that_disappears_with_its_last_reader(in_memory):
    large = dataset().replace(annotations=spooled(ROWS.to_batches(max_chunksize=7), in_memory=in_memory))

    path = Path(large.annotations)
    assert str(pq.read_table(path).to_pylist()) == str(ROWS.to_pylist())
    other = large.replace(name="other")
    del large
    gc.collect()
    assert other.rows().num_rows == ROWS.num_rows
    del other
    gc.collect()
    assert not path.exists()


def test_tables_and_batches_with_coded_text_mix():
    coded = ROWS.set_column(1, "label", ROWS["label"].dictionary_encode())

    found = spooled([coded, ROWS.to_batches()[0]])

    assert found.schema == SCHEMA
    assert found["label"].to_pylist()[: ROWS.num_rows] == ROWS["label"].to_pylist()


def test_nothing_is_an_empty_table():
    assert spooled([SCHEMA.empty_table()]).equals(SCHEMA.empty_table())
