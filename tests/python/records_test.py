"""cairn.data's TFRecord files, tf.train.Example messages and Parquet: every record once among the
workers, exact resume, and corrupt input named."""
import ctypes
import gzip
import mmap
import os
import struct
import sys
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import python_packages  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402
from package import MISSING, cairn, np  # noqa: E402

BUILD = sys.argv[1]
PYARROW = "pyarrow==21.0.0"

# tf.train.Example of keys [7, -3, 2**62], dense [0.5, -2], name [b"a", b""] and an empty feature, as
# TensorFlow 2.21's TFRecordWriter writes it.
RECORDED = bytes.fromhex(
    "56000000000000004e2de2b20a540a150a0564656e7365120c120a0a080000003f000000c00a200a046b657973"
    "12181a160a1407fdffffffffffffffff018080808080808080400a0f0a046e616d6512070a050a01610a000a08"
    "0a046e6f6e651200c5b5e3a5")


def crc32c(data):
    """RFC 3720's, bit by bit, masked as TFRecord wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def framed(record):
    length = struct.pack("<Q", len(record))
    return (length + struct.pack("<I", crc32c(length)) + record +
            struct.pack("<I", crc32c(record)))


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(packed=True, **features):
    """A serialized tf.train.Example."""
    entries = b""
    for name, values in features.items():
        if isinstance(values[0], bytes):
            feature = message(1, b"".join(message(1, v) for v in values))
        elif isinstance(values[0], float):
            floats = [struct.pack("<f", v) for v in values]
            feature = message(2, message(1, b"".join(floats)) if packed else
                              b"".join(b"\x0d" + f for f in floats))
        else:
            ints = [varint(v) for v in values]
            feature = message(3, message(1, b"".join(ints)) if packed else
                              b"".join(b"\x08" + i for i in ints))
        entries += message(1, message(1, name.encode()) + message(2, feature))
    return message(1, entries)


class Folder(scene.FolderTest):
    def check_shares_and_resume(self, read, values_of, whole, workers):
        """`read` divides `whole` among workers without loss, and resumes after any batch."""
        shares = [list(read(worker=i, workers=workers)) for i in range(workers)]
        self.assertEqual(sorted(v for share in shares for b in share for v in values_of(b)),
                         sorted(whole))
        for worker, share in enumerate(shares):
            for at, batch in enumerate(share):
                rest = list(read(worker=worker, workers=workers, position=batch.position))
                self.assertEqual([values_of(b) for b in rest],
                                 [values_of(b) for b in share[at + 1:]])


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Records(Folder):
    def write(self, name, records):
        with (gzip.open if name.endswith(".gz") else open)(self.path(name), "wb") as file:
            file.write(b"".join(map(framed, records)))

    def test_workers_share_records_and_resume(self):
        records = [b"record %d" % i for i in range(23)] + [b""]
        self.write("0.tfrecord", records[:5])
        self.write("1.tfrecord.gz", records[5:20])
        self.write("2.tfrecord", records[20:])
        for workers in (1, 3, 5):  # by file up to 3, by record above
            self.check_shares_and_resume(
                lambda **where: cairn.data.read_records(self.path("*.tfrecord*"), batch_size=4,
                                                        **where),
                lambda batch: batch.records, records, workers)
        twice = list(cairn.data.read_records(self.path("0.tfrecord"), epochs=2, batch_size=3))
        self.assertEqual([len(b) for b in twice], [3, 3, 3, 1])
        self.assertEqual([r for b in twice for r in b.records], records[:5] * 2)
        rest = list(cairn.data.read_records(self.path("0.tfrecord"), epochs=2, batch_size=3,
                                            position=twice[1].position))
        self.assertEqual(rest, twice[2:])
        none = cairn.data.read_records(self.path("0.tfrecord"), epochs=2**60, worker=5, workers=6)
        self.assertEqual(list(none), [])

    def test_batches_may_exceed_4_gib(self):
        with mmap.mmap(-1, 2**32 + 8) as memory:  # untouched pages take no memory
            memory[2**32:] = b"12345678"
            whole = (ctypes.c_ubyte * len(memory)).from_buffer(memory)
            pieces = cairn.data.records._pieces(ctypes.addressof(whole),
                                                [2**32, 2**32 + 3, 2**32 + 3, 2**32 + 8])
            del whole
        self.assertEqual(pieces, [b"123", b"", b"45678"])

    def test_corrupt_records_are_named(self):
        whole = framed(b"first") + framed(b"second")
        damaged = bytearray(whole)
        damaged[-6] ^= 1
        for data, text in ((bytes(damaged), "byte 21 of 6 bytes has a wrong checksum"),
                           (whole[:-3], "is truncated")):
            with open(self.path("bad.tfrecord"), "wb") as file:
                file.write(data)
            with self.assertRaisesRegex(cairn.DataLossError, "bad.tfrecord.*" + text):
                list(cairn.data.read_records(self.path("bad.tfrecord")))
        with self.assertRaisesRegex(cairn.NotFoundError, "absent"):
            cairn.data.read_records(self.path("absent*"))
        for arguments, text in (({"worker": 2}, "worker below workers"),
                                ({"position": "1"}, "position of a batch"),
                                ({"batch_size": 0}, "batch_size is 0")):
            with self.assertRaisesRegex(cairn.InvalidArgumentError, text):
                next(cairn.data.read_records(self.path("bad.tfrecord"), **arguments))
        reader = cairn.data.read_records(self.path("bad.tfrecord"))
        reader.close()
        with self.assertRaises(cairn.ClosedError):
            next(reader)

    def test_reads_what_tensorflow_wrote(self):
        with open(self.path("recorded"), "wb") as file:
            file.write(RECORDED)
        (batch,) = cairn.data.read_records(self.path("recorded"))
        self.assertEqual(framed(batch.records[0]), RECORDED)
        features = cairn.data.parse_examples(batch.records)
        self.assertEqual({name: feature.values.tolist() for name, feature in features.items()},
                         {"keys": [7, -3, 2**62], "dense": [0.5, -2.0], "name": [b"a", b""]})

    def test_examples(self):
        features = cairn.data.parse_examples([
            example(label=[1], x=[0.5, -2.0], name=[b"a"]),
            example(packed=False, label=[-7], x=[1.0, 3.0], name=[b"bc", b"\xff"]),
            example(label=[2**63 - 1], x=[0.0, 1e-3])])
        self.assertEqual(set(features), {"label", "x", "name"})
        np.testing.assert_array_equal(features["label"].dense(), [[1], [-7], [2**63 - 1]])
        self.assertEqual(features["x"].values.dtype, np.float32)
        np.testing.assert_allclose(features["x"].dense(), [[0.5, -2], [1, 3], [0, 1e-3]], 1e-6)
        self.assertEqual(features["name"].values.tolist(), [b"a", b"bc", b"\xff"])
        self.assertEqual(features["name"].offsets.tolist(), [0, 1, 3, 3])
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "0 to 2 values"):
            features["name"].dense()
        for record in (b"\x0a\x05abc", b"\x0a\xff", b"\x0f", example(x=[1.0])[:-1]):
            with self.assertRaisesRegex(cairn.DataLossError, "is no tf.train.Example"):
                cairn.data.parse_examples([record])
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "'x' has another type"):
            cairn.data.parse_examples([example(x=[1]), example(x=[1.0])])


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Parquet(Folder):
    @classmethod
    def setUpClass(cls):
        sys.path.append(python_packages.site_packages(BUILD, "pyarrow", PYARROW))
        global pyarrow  # pylint: disable=global-statement
        import pyarrow.parquet  # noqa: PLC0415

    def write(self, name, begin, end, group_rows):
        rows = np.arange(begin, end)
        table = pyarrow.table({"id": rows, "x": rows.astype(np.float32) / 2,
                               "pair": pyarrow.array([[i, i + 1] for i in rows])})
        pyarrow.parquet.write_table(table, self.path(name), row_group_size=group_rows)

    def test_workers_share_rows_and_resume(self):
        self.write("0.parquet", 0, 25, 10)
        self.write("1.parquet", 25, 60, 8)
        for workers in (1, 3):
            self.check_shares_and_resume(
                lambda **where: cairn.data.read_parquet(self.path("*.parquet"), batch_size=4,
                                                        columns=["id"], epochs=2, **where),
                lambda batch: batch.columns["id"].tolist(), list(range(60)) * 2, workers)
        none = cairn.data.read_parquet(self.path("0.parquet"), epochs=2**60, worker=3, workers=4)
        self.assertEqual(list(none), [])

    def test_columns(self):
        self.write("0.parquet", 0, 5, 10)
        (batch,) = cairn.data.read_parquet(self.path("0.parquet"))
        self.assertEqual(len(batch), 5)
        np.testing.assert_array_equal(batch.columns["x"], np.arange(5, dtype=np.float32) / 2)
        np.testing.assert_array_equal(batch.columns["pair"], [[i, i + 1] for i in range(5)])

    def test_errors(self):
        pyarrow.parquet.write_table(pyarrow.table({
            "holes": [1, None], "ragged": [[1], [1, 2]], "inner holes": [[1, None], [None, 3]],
            "fixed": pyarrow.array([[1, None], [2, 3]], pyarrow.list_(pyarrow.int64(), 2))}),
            self.path("a.parquet"))
        for column, kind, text in (("holes", ValueError, "1 empty cells"),
                                   ("inner holes", ValueError, "lists with 2 empty values"),
                                   ("fixed", ValueError, "lists with 1 empty values"),
                                   ("ragged", ValueError, "lists of 1 to 2 values"),
                                   ("absent", cairn.NotFoundError, "no column 'absent'; it has")):
            with self.assertRaisesRegex(kind, text):
                list(cairn.data.read_parquet(self.path("a.parquet"), columns=[column]))
        with open(self.path("b.parquet"), "wb") as file:
            file.write(b"text")
        with self.assertRaisesRegex(cairn.DataLossError, "b.parquet: is no Parquet file"):
            list(cairn.data.read_parquet(self.path("b.parquet")))
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "worker below workers"):
            cairn.data.read_parquet(self.path("b.parquet"), worker=1)


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class WithoutPyarrow(unittest.TestCase):
    def test_the_error_says_what_to_install(self):
        with unittest.mock.patch.dict(sys.modules, {"pyarrow": None}):
            with self.assertRaisesRegex(cairn.UnimplementedError, "pip install pyarrow"):
                cairn.data.read_parquet("x.parquet")


if __name__ == "__main__":
    tap.main()
