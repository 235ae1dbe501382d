"""Planted uses of padding are found and named; models that mask have none."""

import keras
import numpy as np
import pytest
from keras import ops

import kseq
from kseq.diagnostics import check_padding

WIDTH = 4
IDS = np.array([[3, 5, 4, 0, 0], [6, 3, 0, 0, 0], [7, 6, 3, 5, 4]], "int32")
MASK = IDS != 0


def model_of_ids(*layers, mask_zero=True, length=None):
    inputs = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(9, WIDTH, mask_zero=mask_zero, name="embedding")(inputs)
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, x, name="model")


def attention(kind, **options):
    layer = kind(2, 2, name="attention")
    return lambda x: layer(x, x, **options)


def dense():
    return keras.layers.Dense(WIDTH, name="dense")


def bidirectional():
    layer = kseq.layers.GRU(2, return_sequences=True, name="gru")
    return keras.layers.Bidirectional(layer, name="both")


MASKING = {
    "attention of kseq": [attention(kseq.layers.MultiHeadAttention), dense()],
    "attention of Keras": [attention(keras.layers.MultiHeadAttention), dense()],
    "both directions": [bidirectional(), dense()],
    "last state": [kseq.layers.LSTM(3)],
    "mean": [kseq.layers.SequencePooling("mean")],
    "alone": [dense()],
}


@pytest.mark.parametrize("layers", MASKING.values(), ids=MASKING)
def test_a_model_that_masks_passes(layers):
    report = check_padding(model_of_ids(*layers), IDS, MASK)
    assert report, report
    assert str(report) == "No output depends on padding."


LEAKS = {
    "attention of kseq": (attention(kseq.layers.MultiHeadAttention), "attention", 0, 2),
    "attention of Keras": (
        attention(keras.layers.MultiHeadAttention), "attention", 0, 2
    ),
    "mean": (keras.layers.GlobalAveragePooling1D(name="mean"), "mean", None, 2),
    "last state": (kseq.layers.LSTM(3, name="lstm"), "lstm", None, 2),
    "convolution": (
        keras.layers.Conv1D(WIDTH, 3, padding="same", name="convolution"),
        "convolution", 1, 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "name", "position", "source"), LEAKS.values(), ids=LEAKS
)
def test_without_a_mask_a_leak_is_found_and_named(layer, name, position, source):
    model = model_of_ids(layer, mask_zero=False)
    report = check_padding(model, IDS, MASK, training=False)
    assert not report
    assert report.layer == name
    assert (report.output_position, report.input_position) == (position, source)
    assert f"by layer `{report.layer}`" in str(report)


def test_a_mask_that_was_dropped_on_its_way():
    """An operation of `keras.ops` makes a tensor without the mask."""
    model = model_of_ids(lambda x: x * 2.0, bidirectional())
    report = check_padding(model, IDS, MASK)
    assert report.layer == "both/backward_gru"
    assert (report.output_position, report.input_position) == (0, 2)


def test_statistics_over_padding_in_training():
    model = model_of_ids(
        lambda x: x + 0.0, keras.layers.BatchNormalization(name="norm")
    )
    report = check_padding(model, IDS, MASK)
    assert (report.layer, report.training) == ("norm", True)
    assert check_padding(
        model_of_ids(keras.layers.BatchNormalization(name="norm")), IDS, MASK
    )


def test_more_padding_counts_only_when_it_is_appended():
    """A mean over all positions of vectors that are zero at padding."""
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, WIDTH, name="embedding")(inputs)
    x = x * ops.cast(inputs != 0, "float32")[..., None]
    model = keras.Model(inputs, ops.mean(x, axis=1))
    report = check_padding(model, IDS, MASK)
    assert (report.layer, report.input_position) == ("mean", IDS.shape[1])
    assert check_padding(model, IDS, MASK, append=0)


def test_the_edge_of_a_sequence_in_half_precision():
    """After the last token a convolution sees zeros, or more padding."""
    same = keras.layers.Conv1D(2, 3, padding="same", dtype="bfloat16", name="same")
    # all padding is alike, so what stands there can be exchanged
    model = model_of_ids(lambda x: x * 0.0 + 0.01, same)
    model.get_layer("same").kernel.assign(np.ones((3, WIDTH, 2)))
    report = check_padding(model, IDS, MASK, training=False)
    assert (report.layer, report.output_position, report.input_position) == (
        "same", 4, 5,
    )  # fmt: skip


def test_a_model_of_one_length_is_not_asked_for_another():
    model = model_of_ids(
        kseq.layers.GRU(2, return_sequences=True, zero_output_for_mask=True),
        lambda x: ops.reshape(x, (-1, 10)),
        length=5,
    )
    assert check_padding(model, IDS, MASK)


def test_features_and_masking():
    x = np.random.default_rng(0).normal(size=(3, 5, 2)).astype("float32")
    x[~MASK] = 0
    inputs = keras.Input((None, 2))
    masked = keras.layers.Masking()(inputs)
    assert check_padding(keras.Model(inputs, bidirectional()(masked)), x, MASK)
    report = check_padding(keras.Model(inputs, bidirectional()(inputs)), x, MASK)
    assert report.layer == "both/backward_gru"


def test_a_mask_among_the_inputs():
    x = {"x": np.ones((3, 5, 2), "float32"), "mask": MASK}
    inputs = {
        "x": keras.Input((None, 2), name="x"),
        "mask": keras.Input((None,), dtype="bool", name="mask"),
    }
    layer = kseq.layers.GRU(3)
    masked = keras.Model(inputs, layer(inputs["x"], mask=inputs["mask"]))
    assert check_padding(masked, x, MASK, key="x")
    unmasked = keras.Model(inputs, [layer(inputs["x"]), inputs["mask"]])
    assert not check_padding(unmasked, x, MASK, key="x")


@pytest.mark.parametrize(
    "model",
    [
        kseq.models.TransformerEncoder(9, num_layers=1, hidden_dim=8, num_heads=2),
        kseq.models.RecurrentLM(9, embedding_dim=4, units=4),
    ],
    ids=["transformer", "recurrent"],
)
def test_models_of_kseq(model):
    assert check_padding(model, IDS, MASK, training=False)


def test_what_can_not_be_checked():
    model = model_of_ids(dense())
    with pytest.raises(TypeError, match="`mask` must be boolean"):
        check_padding(model, IDS, IDS)
    for mask in (MASK[:, :-1], np.ones_like(MASK), np.zeros_like(MASK)):
        with pytest.raises(ValueError, match=r"shape \(B, T\) of the input, True and"):
            check_padding(model, IDS, mask)
    with pytest.raises(ValueError, match="`append` must be a positive integer"):
        check_padding(model, IDS, MASK, append=-1)
