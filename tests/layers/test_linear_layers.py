"""MinGRU and RGLRU over a sequence: all steps at once equal one at a time."""

import keras
import numpy as np
import pytest
from helpers import (
    DTYPES,
    assert_close,
    cotangent,
    gradients,
    on_tensorflow,
    set_weights_by_seed,
)
from reference import linear_cells
from reference.differences import numeric_gradients

import kseq

T, U = 5, 4
ONES = [True] * T
MASK = np.array(
    [
        ONES,
        [True] * 3 + [False] * 2,  # right
        [False] * 2 + [True] * 3,  # left
        [True, False, False, True, True],  # interior
        [False] * T,
        ONES,
    ]
)
RESETS = np.zeros(MASK.shape, bool)
RESETS[0, [0, 3]] = RESETS[1, 2] = RESETS[2, [0, 2]] = True
RESETS[3, [1, 3]] = RESETS[4, 2] = RESETS[5, 4] = True  # some at masked steps
MASKS = {"mask": {"mask": MASK}, "resets": {"mask": MASK, "reset_mask": RESETS}}
B = len(MASK)
KINDS = {
    "min-gru": (kseq.layers.MinGRU, 3, {}, linear_cells.min_gru_step),
    "rg-lru": (kseq.layers.RGLRU, U, {"num_heads": 2}, linear_cells.rglru_step),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
directions = pytest.mark.parametrize(
    "go_backwards", [False, True], ids=["forward", "backward"]
)
masked = pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)


def make(kind, dtype="float32", **options):
    """The layer with its weights, inputs and a first state."""
    layer_class, width, own, _ = kind
    layer = layer_class(
        U, return_sequences=True, return_state=True, dtype=dtype, **own, **options
    )
    layer.build((B, T, width))
    rng = np.random.default_rng(1)
    x, h = rng.normal(size=(B, T, width)), rng.normal(size=(B, U))
    return layer, set_weights_by_seed(layer, 0), x.astype(dtype), h.astype(dtype)


def reference(kind, go_backwards, masks, x, h, weights):
    outputs, last = linear_cells.run(
        kind[-1], weights, x, h, go_backwards=go_backwards, **masks
    )
    return [outputs[:, ::-1] if go_backwards else outputs, last]


@masked
@directions
@kinds
def test_outputs_states_and_gradients(kind, go_backwards, masks):
    """Of inputs, first state and weights, by central differences, compiled."""
    layer, weights, x, h = make(kind, go_backwards=go_backwards)

    def loss(x, h, *weights):
        ys = reference(kind, go_backwards, masks, x, h, weights)
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(ys))

    outputs, d_inputs, d_weights = gradients(
        lambda x, h: layer(x, initial_state=[h], **masks),
        [x, h], layer.trainable_variables, mode="compiled",
    )  # fmt: skip
    want = reference(kind, go_backwards, masks, x, h, weights)
    assert_close("outputs", outputs, want)
    want = numeric_gradients(loss, [x, h, *weights])
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


@pytest.mark.parametrize("dtype", DTYPES)
@directions
@kinds
def test_without_a_mask(kind, go_backwards, dtype):
    layer, weights, x, h = make(kind, dtype, go_backwards=go_backwards)
    outputs = layer(x, initial_state=[h])
    want = reference(kind, go_backwards, {}, x, h, weights)
    assert_close("outputs", outputs, want, dtype)


@on_tensorflow
@kinds
def test_resets_of_unknown_batch_and_time(kind):
    layer, weights, x, h = make(kind)
    found, *_ = gradients(
        lambda x, h, *masks: layer(
            x, initial_state=[h], mask=masks[0], reset_mask=masks[1]
        ),
        [x, h], layer.trainable_variables, mode="unknown", extras=[MASK, RESETS],
    )  # fmt: skip
    want = reference(kind, False, MASKS["resets"], x, h, weights)
    assert_close("outputs", found, want)


@kinds
def test_the_cell_alone_makes_the_same_steps(kind):
    layer, _, x, h = make(kind)
    outputs, last = layer(x, initial_state=[h])
    state = [h]
    for t in range(T):
        output, state = layer.cell(x[:, t], state)
        assert_close(f"step {t}", output, outputs[:, t])
    assert_close("last", state, [last])


@kinds
def test_windows_that_hand_on_their_state(kind):
    layer, _, x, h = make(kind)
    outputs, last = layer(x, initial_state=[h])
    state, windows = h, []
    for window in np.split(x, [2], axis=1):
        y, state = layer(window, initial_state=[state])
        windows.append(y)
    assert_close("outputs", keras.ops.concatenate(windows, axis=1), outputs)
    assert_close("last", state, last)
    kept, *_ = make(kind, stateful=True)
    kept.cell.set_weights(layer.get_weights())
    kept.reset_state()
    want, _ = layer(x)
    first, _ = kept(x[:, :2])
    second, _ = kept(x[:, 2:])
    assert_close("stateful", keras.ops.concatenate([first, second], axis=1), want)


@kinds
def test_segments_of_a_row_are_sequences_of_their_own(kind):
    """With a reset at the first step of each, as `segment_starts` makes them."""
    layer, _, x, _ = make(kind)
    ids = np.repeat([[1, 1, 2, 2, 2]], B, axis=0)
    starts = kseq.ops.segment_starts(ids)
    outputs, _ = layer(x, reset_mask=starts)
    for part in (slice(0, 2), slice(2, 5)):
        want, _ = layer(x[:, part], reset_mask=starts[:, part])
        assert_close("segment", outputs[:, part], want)


@kinds
def test_resets_to_a_trained_first_state(kind):
    """It counts, so that the step is the paper's."""
    layer, _, x, _ = make(kind, trainable_initial_state=True)
    first, *weights = layer.get_weights()
    assert first.shape == (U,)
    step = lambda weights, x, h, starts: kind[-1](weights, x, first if starts else h)
    want, _ = linear_cells.run(
        step, weights, x, np.tile(first, (B, 1)), reset_mask=RESETS
    )
    assert_close("outputs", layer(x, reset_mask=RESETS)[0], want)


@kinds
def test_both_directions(kind):
    layer_class, width, options, step = kind
    layer = layer_class(U, return_sequences=True, **options)
    both = keras.layers.Bidirectional(layer)
    both.build((B, T, width))
    weights = set_weights_by_seed(both, 2)
    half, zeros = len(weights) // 2, np.zeros((B, U))
    x = np.random.default_rng(3).normal(size=(B, T, width)).astype("float32")
    want = [
        linear_cells.run(step, part, x, zeros, MASK, go_backwards=backwards)[0]
        for part, backwards in ((weights[:half], False), (weights[half:], True))
    ]
    # Keras has both return zeros at masked steps
    want = np.where(MASK[..., None], np.concatenate(want, axis=-1), 0)
    assert_close("outputs", both(x, mask=MASK), want)


@kinds
def test_gradients_of_mixed_precision(kind):
    """With resets, near those of float32."""
    layer, weights, x, _ = make(kind)
    half = type(layer).from_config({**layer.get_config(), "dtype": "mixed_float16"})
    half.build(x.shape)
    half.set_weights(weights)

    def found(layer):
        call = lambda x: layer(x, **MASKS["resets"])[0]
        return gradients(call, [x], layer.trainable_variables, mode="compiled")[2]

    for got, want in zip(found(half), found(layer), strict=True):
        scale = max(1, np.abs(want).max())
        assert_close("gradient", got / scale, want / scale, "float16", gradient=True)
