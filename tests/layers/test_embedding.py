"""The embedding: rows of the table, and ids that have none."""

import numpy as np
import pytest
from keras import ops

import kseq
from kseq.backend import compiled


@pytest.fixture(scope="module")
def layer():
    layer = kseq.layers.Embedding(5, 3, mask_zero=True)
    layer.build((None, None))
    layer.set_weights([np.arange(15, dtype="float32").reshape(5, 3)])
    return layer


def test_takes_rows(layer):
    got = ops.convert_to_numpy(layer(np.array([[4, 0], [1, 2]])))
    np.testing.assert_array_equal(
        got, [[[12, 13, 14], [0, 1, 2]], [[3, 4, 5], [6, 7, 8]]]
    )


@pytest.mark.parametrize(
    ("ids", "words"),
    [([[0, 5]], r"Token ids must lie in .* largest=5"), ([[-1, 2]], "smallest=-1")],
)
def test_an_eager_call_refuses_ids_without_a_row(layer, ids, words):
    with pytest.raises(ValueError, match=words):
        layer(np.array(ids))


def test_no_ids_are_fine(layer):
    assert tuple(layer(np.zeros((2, 0), "int32")).shape) == (2, 0, 3)


def test_a_compiled_call_clamps(layer):
    run = compiled(layer, layer.variables)
    got = ops.convert_to_numpy(run(ops.convert_to_tensor([[-7, 2, 99]])))
    np.testing.assert_array_equal(got, [[[0, 1, 2], [6, 7, 8], [12, 13, 14]]])
