"""One array with a header, as bytes: in event files and between server and page.

    "kseq" | length of the header, uint32 | header, JSON, UTF-8 | array

All little-endian. Spaces after the header bring the array to a multiple of 4 bytes.
The header holds "v": 1, "dtype" and "shape" of the array, and what the writer adds.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

_MAGIC = b"kseq"
_PREFIX = struct.Struct("<4sI")


def pack(array: np.ndarray, header: Mapping[str, Any]) -> bytes:
    """The record of `array`, which keeps its dtype."""
    header = {"v": 1, "dtype": array.dtype.name, "shape": array.shape, **header}
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 4)
    data = array.astype(array.dtype.newbyteorder("<"))
    return _PREFIX.pack(_MAGIC, len(text)) + text + data.tobytes()


def unpack(record: bytes) -> tuple[dict[str, Any], np.ndarray]:
    """The header and the array of a record.

    Raises:
        ValueError: if the bytes are no record, or one of a later version.
    """
    if record[:4] != _MAGIC:
        raise ValueError(f"Not a record of kseq: it begins with {record[:4]!r}.")
    _, length = _PREFIX.unpack_from(record)
    start = _PREFIX.size + length
    header = json.loads(record[_PREFIX.size : start])
    if header["v"] != 1:
        raise ValueError(
            f"A record of version {header['v']}, and this dashboard reads version 1. "
            "Install the kseq that wrote it."
        )
    dtype = np.dtype(header["dtype"]).newbyteorder("<")
    return header, np.frombuffer(record, dtype, offset=start).reshape(header["shape"])
