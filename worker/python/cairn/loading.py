"""Reads trained values from exports and checkpoints into numpy arrays."""
from __future__ import annotations

import json
import math
import os
import zipfile
from typing import Dict, Mapping, Tuple, Union

import numpy as np

from cairn import _checks
from cairn._arrays import Array
from cairn.cluster import Cluster
from cairn.errors import DataLossError, InvalidArgumentError, NotFoundError
from cairn.variables import Variable

Loaded = Mapping[str, Union[Array, Tuple[Array, Array]]]
_SAFETENSORS = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2", "I32": "<i4",
                "I64": "<i8", "U8": "u1", "U16": "<u2", "BOOL": "?"}
_MAX_HEADER_BYTES = 100_000_000


def _read_safetensors(path: str) -> Dict[str, Array]:
    arrays = {}
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        if header_bytes > min(_MAX_HEADER_BYTES, size - 8):
            raise DataLossError(f"{path}: is no safetensors file: its header would have "
                                f"{header_bytes} bytes")
        try:
            header = json.loads(file.read(header_bytes))
        except (ValueError, RecursionError):
            header = None
    if not isinstance(header, dict):
        raise DataLossError(f"{path}: its header is corrupt: it is no JSON object")
    data_begin = 8 + header_bytes
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            begin, end = (_checks.integer(offset, "data_offsets", 0)
                          for offset in entry["data_offsets"])
            shape = [_checks.integer(extent, "shape", 0) for extent in entry["shape"]]
            dtype = np.dtype(_SAFETENSORS[entry["dtype"]])
        except (KeyError, TypeError, ValueError) as error:
            raise DataLossError(f"{path}: its header is corrupt: array '{name[:60]}' has wrong "
                                f"offsets, a wrong shape or a wrong dtype: {error}") from None
        count = math.prod(shape)
        if data_begin + end > size or end - begin != count * dtype.itemsize:
            raise DataLossError(f"{path}: array '{name}' lies outside the file: it is incomplete")
        array: Array = np.fromfile(path, dtype, count, offset=data_begin + begin)
        arrays[name] = array.reshape(shape)
    return arrays


def _job_of(path: str) -> str:
    why = "its key 'job' is missing or no text"
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
        if isinstance(manifest, dict) and isinstance(manifest.get("job"), str) and manifest["job"]:
            return str(manifest["job"])
    except (ValueError, RecursionError):
        why = "it is not valid JSON: it is perhaps incomplete"
    raise DataLossError(f"{path} is corrupt ({why}): load another checkpoint, or bring this file "
                        "back from a copy")


def _read_checkpoint(folder: str) -> Dict[str, Union[Array, Tuple[Array, Array]]]:
    job = _job_of(os.path.join(folder, "MANIFEST.json"))
    values: Dict[str, Union[Array, Tuple[Array, Array]]] = {}
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Rows that are too old by now belong to the checkpoint all the same.
    with Cluster(1, None, "off", True, memory_budget_bytes=memory, keep_all_rows=True) as cluster:
        with cluster.connect(job=job) as restorer:
            restorer.restore(folder)
        with cluster.connect(job=job) as client:
            for name, stored in client.variables().items():
                values[name] = stored.pull() if isinstance(stored, Variable) else stored.scan()
    return values


def load(path: Union[str, os.PathLike[str]]) -> Loaded:
    """Loads values by name from an export or a checkpoint.

    Args:
        path: an exported file (.npz or .safetensors), or a checkpoint's directory. A checkpoint is
            restored into a temporary server in this process, which holds all of it in memory. Its
            rows are read whatever their age (expire_after).

    Returns:
        A dictionary of numpy arrays by name. An embedding table is two arrays in an export,
        NAME/keys and NAME/values; from a checkpoint it is a tuple (keys [n] int64, values [n, dim]
        float32).

    Raises:
        NotFoundError: `path` does not exist, or is a directory without a checkpoint.
        InvalidArgumentError: a file of another type.
        DataLossError: the file is corrupt."""
    text = os.path.abspath(_checks.path(path, "path"))
    if not os.path.exists(text):
        raise NotFoundError(f"{text}: does not exist")
    if os.path.isdir(text):
        if not os.path.exists(os.path.join(text, "MANIFEST.json")):
            raise NotFoundError(f"{text}: has no MANIFEST.json; expected a checkpoint's directory, "
                                "which Client.checkpoint and cairnctl name")
        return _read_checkpoint(text)
    if text.endswith(".npz"):
        try:
            with np.load(text, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (AttributeError, EOFError, TypeError, ValueError,
                zipfile.BadZipFile) as error:
            raise DataLossError(f"{text}: is no .npz file of numbers: {error}") from error
    if text.endswith(".safetensors"):
        return _read_safetensors(text)
    raise InvalidArgumentError(f"{text}: expected a .npz or .safetensors file or a checkpoint's "
                               "directory")


__all__ = ["load"]
