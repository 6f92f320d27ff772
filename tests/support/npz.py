"""Arrays of an .npz written by cairn-worker: float32 and int64, flat. Without numpy."""
import array
import zipfile


def read(path):
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            header_bytes = int.from_bytes(data[8:10], "little")
            code = "f" if b"<f4" in data[10:10 + header_bytes] else "q"
            arrays[name.removesuffix(".npy")] = array.array(code, data[10 + header_bytes:])
    return arrays


def by_key(arrays):
    """The same arrays with the rows of embedding tables in key order, flat."""
    ordered = dict(arrays)
    for name, keys in arrays.items():
        if not name.endswith("/keys"):
            continue
        table = name.removesuffix("keys") + "values"
        values, width = arrays[table], len(arrays[table]) // max(len(keys), 1)
        order = sorted(range(len(keys)), key=keys.__getitem__)
        ordered[name] = array.array("q", (keys[i] for i in order))
        ordered[table] = array.array(
            "f", (x for i in order for x in values[i * width:(i + 1) * width]))
    return ordered
