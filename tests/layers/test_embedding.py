"""The embedding: rows of the table, and ids that have none."""

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same
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


def test_in_reverse_it_scores_all_ids(layer):
    """Rows 0 to 4 of the table are 3i, 3i + 1, 3i + 2."""
    got = ops.convert_to_numpy(
        layer(np.array([[[1.0, 0, 0], [1, 1, 1]]]), reverse=True)
    )
    np.testing.assert_array_equal(got, [[[0, 3, 6, 9, 12], [3, 12, 21, 30, 39]]])


class MaskOf(keras.layers.Layer):
    """The mask that Keras fills in, 1 for True; -1 where there is none."""

    supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            return -ops.ones_like(inputs[..., 0])
        return ops.cast(mask, "float32")


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("mask_zero", [True, False])
def test_masks_of_both_ways(mask_zero, dtype):
    """In reverse that of the hidden states; never one of their zeros."""
    layer = kseq.layers.Embedding(5, 3, mask_zero=mask_zero)
    ids = keras.Input((None,), dtype=dtype)
    hidden = layer(ids)
    masks = [MaskOf()(h) for h in (hidden, layer(hidden, reverse=True))]
    given, free = keras.Input((None, 3)), keras.Input((None, 3))
    masked = keras.layers.Masking()(given)
    masks += [MaskOf()(layer(h, reverse=True)) for h in (masked, free)]
    model = keras.Model([ids, given, free], masks)
    array = np.array([[4, 0]])
    zeros = np.array([[[0.0, 0, 0], [1, 0, 2]]], "float32")
    want = [[1, 0] if mask_zero else [-1, -1]] * 2 + [[0, 1], [-1, -1]]
    for run in (model, model.predict_on_batch):
        got = run([array.astype(dtype), zeros, zeros])
        np.testing.assert_array_equal(np.concatenate([*map(np.array, got)]), want)
    assert np.array(layer.compute_mask(array)).tolist() == (
        [[True, False]] if mask_zero else None
    )


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_tied_weights_in_a_saved_model(policy, tmp_path):
    table = kseq.layers.Embedding(7, 4, mask_zero=True, dtype=policy)
    ids = keras.Input((None,), dtype="int32")
    h = keras.layers.Dense(4, dtype="float32")(table(ids))
    logits = table(h, reverse=True)
    assert logits.shape == (None, None, 7)
    assert logits.dtype == table.compute_dtype
    model = keras.Model(ids, logits)
    assert len(model.weights) == 3
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = np.array([[1, 6, 0]])
    y = model(x)
    assert tuple(y.shape) == (1, 3, 7)
    assert keras.backend.standardize_dtype(y.dtype) == logits.dtype
    assert_same("logits", loaded(x), y)
    table_value, kernel, bias = (np.array(w, "float64") for w in model.get_weights())
    want = (table_value[x] @ kernel + bias) @ table_value.T
    assert_close("logits", y, want, table.compute_dtype)


def test_hidden_states_of_another_width_are_named(layer):
    words = r"as wide as a row.*inputs_shape=\(1, 2, 4\), output_dim=3"
    with pytest.raises(ValueError, match=words):
        layer(np.ones((1, 2, 4), "float32"), reverse=True)
    with pytest.raises(ValueError, match="as wide as a row"):
        layer(keras.Input((2, 4)), reverse=True)


def test_adam_moves_a_repeated_token_no_further_than_its_rate():
    """The first step of Adam is rate g / (|g| + epsilon), g summed over repeats."""
    layer = kseq.layers.Embedding(5, 2)
    model = keras.Sequential([layer, keras.layers.GlobalAveragePooling1D()])
    ids = np.array([[1, 1, 1, 2]])
    before = np.array(model(ids))
    assert before.shape == (1, 2)
    table = layer.get_weights()[0]
    model.compile(keras.optimizers.Adam(0.1, epsilon=1e-12), loss="mse")
    model.train_on_batch(ids, before + 1)
    moved = layer.get_weights()[0] - table
    want = np.zeros((5, 2))
    want[1:3] = 0.1  # upwards, to the target
    assert_close("moved", moved, want)
