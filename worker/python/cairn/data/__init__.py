"""Batches of input files, divided among workers, which a restart resumes exactly.

    for batch in cairn.data.read("clicks/*.tsv", "criteo_tsv", batch_size=1024,
                                 worker=0, workers=2, position=client.position):
        train(batch.dense, batch.keys, batch.labels)
        client.push(..., position=batch.position)   # a restart continues after this batch

`read` parses text formats with Cairn's readers. `read_records` returns the records of TFRecord
files, and `parse_examples` turns them into arrays. `read_parquet` reads columns with pyarrow."""
from cairn.data.examples import Ragged, parse_examples
from cairn.data.parquet import Columns, ParquetReader, read_parquet
from cairn.data.readers import Batch, Reader, Sparse, read
from cairn.data.records import RecordReader, Records, read_records

__all__ = [
    "Batch", "Columns", "ParquetReader", "Ragged", "Reader", "RecordReader", "Records", "Sparse",
    "parse_examples", "read", "read_parquet", "read_records",
]
