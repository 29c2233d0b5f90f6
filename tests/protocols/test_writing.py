from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from protocols.cases import made
from tagfill.protocols.writing import RowWriter


def test_few_rows_stay_in_memory():
    rows = made().rows()
    writer = RowWriter()

    for batch in rows.to_batches(max_chunksize=100):
        writer.write(batch)

    assert writer.close().equals(rows)


def test_many_rows_go_to_a_file_that_disappears_with_its_last_reader():
    data = made()
    rows = data.rows()
    writer = RowWriter(in_memory=150)
    for batch in rows.to_batches(max_chunksize=100):
        writer.write(batch)

    large = data.replace(annotations=writer.close())
    del writer
    path = Path(large.annotations)
    assert pq.read_table(path).equals(rows)
    other = large.replace(name="other")
    del large
    gc.collect()
    assert other.rows().equals(rows)
    del other
    gc.collect()
    assert not path.exists()


def test_nothing_is_an_empty_table():
    found = RowWriter().close()

    assert isinstance(found, pa.Table)
    assert found.num_rows == 0
