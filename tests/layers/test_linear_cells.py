"""MinGRUCell and RGLRUCell: one step by the equation, by hand, in log space."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, gradients, set_weights_by_seed, to_numpy
from reference import linear_cells
from reference.differences import numeric_gradients

import kseq

U = 6
# inputs, options and the equation of each cell
CASES = {
    "min-gru": (kseq.layers.MinGRUCell, 3, {}, linear_cells.min_gru_step),
    "rg-lru": (kseq.layers.RGLRUCell, U, {}, linear_cells.rglru_step),
    "rg-lru-heads": (
        kseq.layers.RGLRUCell, U, {"num_heads": 3}, linear_cells.rglru_step
    ),
}  # fmt: skip
CELLS = [kseq.layers.MinGRUCell, kseq.layers.RGLRUCell]
kinds = pytest.mark.parametrize("kind", CASES.values(), ids=CASES)
cells = pytest.mark.parametrize("cell_class", CELLS, ids=lambda c: c.__name__)


def make(kind, seed, dtype="float32"):
    cell_class, width, options, step = kind
    cell = cell_class(U, dtype=dtype, **options)
    cell.build((2, width))
    rng = np.random.default_rng(seed)
    x, h = rng.normal(size=(2, width)), rng.normal(size=(2, U))
    weights = [w.astype("float64") for w in set_weights_by_seed(cell, seed)]
    return cell, weights, x.astype(dtype), h.astype(dtype), step


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1])
@kinds
def test_reference(kind, seed, dtype):
    cell, weights, x, h, step = make(kind, seed, dtype)
    output, states = cell(x, [h])
    want = [step(weights, *row) for row in zip(x, h)]
    assert_close("output", output, want, dtype)
    assert_close("states", states, [want], dtype)


@kinds
def test_gradients_by_central_differences(kind):
    cell, weights, x, h, step = make(kind, 3)
    want = numeric_gradients(
        lambda x, h, *weights: sum(
            (step(weights, *row) ** 2).sum() for row in zip(x, h)
        ),
        [x, h, *weights],
    )
    _, d_inputs, d_weights = gradients(
        lambda x, h: cell(x, [h])[0], [x, h], cell.trainable_variables,
        loss=lambda y: keras.ops.sum(y * y),
    )  # fmt: skip
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


def test_min_gru_by_hand():
    """Worked in float64: k = .3, -1, 2 and v = 1, -2, .5."""
    layer = kseq.layers.MinGRU(1, return_sequences=True)
    layer.build((1, 3, 2))
    layer.set_weights([np.eye(2), np.zeros(2)])
    x = np.array([[[0.3, 1.0], [-1.0, -2.0], [2.0, 0.5]]], "float32")
    assert_close("h", layer(x)[0, :, 0], [0.86166378, 0.66198530, 0.95970766])


def test_min_gru_in_log_space():
    """The closed form of appendix B, where nothing is multiplied step by step."""
    x = np.random.default_rng(0).normal(0, 2, (1, 31, 2 * U)).astype("float32")
    layer = kseq.layers.MinGRU(U, return_sequences=True, use_bias=False)
    layer.build(x.shape)
    layer.set_weights([np.eye(2 * U)])
    k, v = np.split(x[0].astype("float64"), 2, axis=1)
    want = [linear_cells.min_gru_in_log_space(*pair) for pair in zip(k.T, v.T)]
    assert_close("h", layer(x)[0], np.transpose(want))


@pytest.mark.parametrize(
    ("resets", "want"),
    [
        (None, [0.46748327, -0.12044238, 0.78040962]),
        ([[True, False, False]], [0.47502081, -0.11792638, 0.78073387]),
    ],
    ids=["paper", "segment-start"],
)
def test_rglru_by_hand(resets, want):
    """Worked in float64; softplus(L) for softplus(-L) would end at 0.80257099."""
    layer = kseq.layers.RGLRU(1, return_sequences=True)
    layer.build((1, 3, 1))
    layer.set_weights([np.array([[0.7, -0.3]]), np.array([0.1, 0.2]), np.ones(1)])
    x = np.array([[[1.0], [-0.5], [2.0]]], "float32")
    resets = None if resets is None else np.array(resets)
    assert_close("h", layer(x, reset_mask=resets)[0, :, 0], want)


def test_first_decay_of_rglru():
    """s(L)^2 is uniform between .9^2 and .999^2; L is -(-2.197) to -(-6.907)."""
    cell = kseq.layers.RGLRUCell(2000)
    cell.build((None, 2000))
    decay = to_numpy(cell.decay).astype("float64")
    assert 2.19722 < decay.min() < 2.21
    assert 6.5 < decay.max() < 6.90677
    squares = np.sort(linear_cells.sigmoid(decay) ** 2)
    uniform = np.linspace(0.9**2, 0.999**2, len(squares))
    assert np.abs(squares - uniform).max() < 0.01


def test_first_kernel_of_rglru():
    """Of variance 1 over the inputs that a gate sees, in each block another."""
    cell = kseq.layers.RGLRUCell(120, num_heads=4)
    cell.build((None, 120))
    kernel = to_numpy(cell.kernel)
    assert kernel.shape == (30, 240)
    assert abs(kernel.std() * 30**0.5 - 1) < 0.05
    blocks = kernel.reshape(30, 8, 30).swapaxes(0, 1)
    assert len({float(block[0, 0]) for block in blocks}) == 8


def test_the_slope_of_the_square_root_is_held():
    """To 1000 where it is 3900, and where a is 1, r 0 and the slope infinite."""

    def slope(bias, decay):
        cell = kseq.layers.RGLRUCell(1, kernel_initializer="zeros")
        cell.build((1, 1))
        cell.set_weights([np.zeros((1, 2)), np.array([bias, 0]), np.array([decay])])
        x, h = np.full((1, 1), 2, "float32"), np.zeros((1, 1), "float32")
        _, _, found = gradients(lambda x: cell(x, [h])[0], [x], [cell.decay],
                                loss=keras.ops.sum)  # fmt: skip
        return float(found[0][0])

    small = linear_cells.sigmoid(-20.0)
    # h = sqrt(8 softplus(-L)) for r = i = 1 / 2 and x = 2, small softplus
    np.testing.assert_allclose(slope(0, 20.0), -1000 * 8 * small, rtol=1e-4)
    true = -4 * linear_cells.sigmoid(-10.0) / np.sqrt(8 * np.log1p(np.exp(-10.0)))
    np.testing.assert_allclose(slope(0, 10.0), true, rtol=1e-3)
    assert slope(-200.0, 1.0) == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16", "float16"])
def test_small_steps_add_up_in_half_precision(dtype):
    """z = 3e-4: an h in bfloat16 would stop at a tenth of the way."""
    layer = kseq.layers.MinGRU(1, dtype=dtype)
    layer.build((1, 2000, 1))
    layer.set_weights([np.zeros((1, 2)), np.array([-8.0, 1.0])])
    h = layer(np.zeros((1, 2000, 1), "float32"))
    z = linear_cells.sigmoid(-8.0)
    assert_close("h", h, [[1.5 * (1 - (1 - z) ** 2000)]], "bfloat16")


@cells
def test_every_argument_reaches_its_weight_and_the_config(cell_class):
    cell = cell_class(
        U,
        kernel_initializer=keras.initializers.Constant(0.5),
        bias_initializer="ones",
        kernel_regularizer=keras.regularizers.L2(0.1),
        bias_regularizer=keras.regularizers.L2(0.3),
        kernel_constraint="non_neg",
        bias_constraint="unit_norm",
        dropout=0.1,
        seed=3,
    )
    cell.build((None, U))
    assert_close("kernel", cell.kernel, np.full((U, 2 * U), 0.5))
    assert_close("bias", cell.bias, np.ones(2 * U))
    assert isinstance(cell.kernel.constraint, keras.constraints.NonNeg)
    assert isinstance(cell.bias.constraint, keras.constraints.UnitNorm)
    assert_close("losses", sum(cell.losses), 0.1 * 0.25 * 2 * U * U + 0.3 * 2 * U)
    config = cell.get_config()
    assert not [key for key in config if "recurrent" in key or key == "activation"]
    again = cell_class.from_config(config)
    assert again.get_config() == config
    assert (again.dropout, again.seed) == (0.1, 3)
    without = cell_class(U, use_bias=False)
    without.build((None, U))
    assert "bias" not in [w.name for w in without.weights]
    output, _ = without(np.ones((2, U), "float32"), [np.ones((2, U), "float32")])
    assert tuple(output.shape) == (2, U)


@pytest.mark.parametrize(
    "name",
    [
        "activation", "recurrent_dropout", "recurrent_initializer",
        "recurrent_regularizer", "recurrent_constraint",
    ],
)  # fmt: skip
@cells
def test_what_belongs_to_a_recurrent_kernel_is_refused(cell_class, name):
    owner = rf"kseq\.layers\.{cell_class.__name__}, which has no recurrent kernel"
    with pytest.raises(
        TypeError, match=rf"`{name}` is no argument of {owner}\. Received: {name}=0\.1"
    ):
        cell_class(U, **{name: 0.1})


@cells
def test_the_width_of_the_inputs_must_be_known(cell_class):
    with pytest.raises(ValueError, match=r"last axis .* must be known\. .*\(2, None\)"):
        cell_class(5).build((2, None))


def test_the_inputs_of_rglru_are_units_wide():
    with pytest.raises(
        ValueError, match=r"must be `units` wide\. Received: units=4, .*\(2, 3\)\. Put"
    ):
        kseq.layers.RGLRU(4)(np.ones((2, 5, 3), "float32"))


@pytest.mark.parametrize("heads", [3, 8])
def test_heads_must_divide_the_units(heads):
    with pytest.raises(
        ValueError, match=rf"must divide `units`\. Received: num_heads={heads}, units=4"
    ):
        kseq.layers.RGLRUCell(4, num_heads=heads)


def test_heads_must_be_a_size():
    with pytest.raises(ValueError, match="`num_heads` must be a positive integer"):
        kseq.layers.RGLRUCell(4, num_heads=0)


def test_a_base_cell_has_no_coefficients():
    from kseq.layers.recurrent.linear_cell import LinearCell

    class Half(LinearCell):
        pass

    with pytest.raises(NotImplementedError, match="Half must implement `coefficients`"):
        Half(5)(np.ones((2, 3), "float32"), [np.zeros((2, 5), "float32")])
