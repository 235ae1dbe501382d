"""The layout of a record, byte by byte."""

import json
import struct

import numpy as np
import pytest

from kseq_tensorboard.records import pack, unpack


def test_bytes_of_a_record():
    record = pack(np.array([[1.0, -2.0]], "float16"), {"keys": ["ə"]})
    assert record[:4] == b"kseq"
    [length] = struct.unpack("<I", record[4:8])
    assert length % 4 == 0
    header = json.loads(record[8 : 8 + length].decode())
    assert header == {"v": 1, "dtype": "float16", "shape": [1, 2], "keys": ["ə"]}
    # IEEE 754 half precision, lower byte first
    assert record[8 + length :] == b"\x00\x3c\x00\xc0"


@pytest.mark.parametrize("dtype", ["float16", "float32", ">f4"])
def test_what_is_packed_comes_back(dtype):
    array = np.random.default_rng(0).normal(size=(3, 5, 7)).astype(dtype)
    header, got = unpack(pack(array, {"step": 2**40}))
    assert header["step"] == 2**40
    np.testing.assert_array_equal(got, array)


def test_an_empty_array_comes_back():
    assert unpack(pack(np.zeros((0, 3), "float32"), {}))[1].shape == (0, 3)


def test_other_bytes_are_refused():
    with pytest.raises(ValueError, match=r"Not a record of kseq.*b'PNG\.'"):
        unpack(b"PNG.........")


def test_a_later_version_is_refused():
    record = pack(np.zeros(1), {"v": 2})
    with pytest.raises(ValueError, match="version 2, and this dashboard reads"):
        unpack(record)
