"""What all cells share: arguments, dropout, errors."""

import keras
import numpy as np
import pytest
from helpers import assert_close, to_numpy

import kseq

CELLS = [kseq.layers.SimpleRNNCell, kseq.layers.GRUCell, kseq.layers.LSTMCell]
cells = pytest.mark.parametrize("cell_class", CELLS, ids=lambda c: c.__name__)
X = np.random.default_rng(0).normal(size=(3, 7)).astype("float32")


@cells
def test_every_argument_reaches_its_weight_and_the_config(cell_class):
    cell = cell_class(
        5,
        activation="relu",
        use_bias=True,
        kernel_initializer=keras.initializers.Constant(0.5),
        recurrent_initializer=keras.initializers.Constant(0.25),
        bias_initializer="zeros",
        kernel_regularizer=keras.regularizers.L2(0.1),
        recurrent_regularizer=keras.regularizers.L1(0.2),
        bias_regularizer=keras.regularizers.L2(0.3),
        kernel_constraint="non_neg",
        recurrent_constraint="max_norm",
        bias_constraint="unit_norm",
        dropout=0.1,
        recurrent_dropout=0.2,
        seed=3,
    )
    cell.build((None, 7))
    assert_close("kernel", cell.kernel, np.full(cell.kernel.shape, 0.5))
    recurrent = cell.recurrent_kernel
    assert_close("recurrent", recurrent, np.full(recurrent.shape, 0.25))
    assert isinstance(cell.kernel.constraint, keras.constraints.NonNeg)
    assert isinstance(recurrent.constraint, keras.constraints.MaxNorm)
    assert isinstance(cell.bias.constraint, keras.constraints.UnitNorm)
    bias = to_numpy(cell.bias)
    want = (
        0.1 * 0.25 * cell.kernel.shape[0] * cell.kernel.shape[1]
        + 0.2 * 0.25 * recurrent.shape[0] * recurrent.shape[1]
        + 0.3 * (bias**2).sum()
    )
    assert_close("regularization", sum(cell.losses), want)
    again = cell_class.from_config(cell.get_config())
    assert again.get_config() == cell.get_config()
    assert (again.dropout, again.recurrent_dropout, again.seed) == (0.1, 0.2, 3)
    assert again.kernel_regularizer.l2 == pytest.approx(0.1)


@cells
def test_seed_generator_exists_only_for_dropout(cell_class):
    assert not cell_class(5).non_trainable_variables
    assert len(cell_class(5, dropout=0.1).variables) == 1
    assert len(cell_class(5, recurrent_dropout=0.1).variables) == 1


@cells
def test_dropout_zeros_features_and_scales_the_rest(cell_class):
    """Of the projection alone: x * mask / .5 times the identity."""
    cell = cell_class(7, dropout=0.5, seed=1, kernel_initializer="zeros")
    cell.build((3, 7))
    kernel = np.zeros(cell.kernel.shape)
    kernel[:, :7] = np.eye(7)
    cell.kernel.assign(kernel)
    got = to_numpy(cell.project(X, training=True))[:, :7]
    dropped = got == 0
    assert 0 < dropped.sum() < dropped.size
    assert_close("kept", got[~dropped], 2 * X[~dropped])
    assert_close("inference", cell.project(X)[:, :7], X)


@cells
def test_recurrent_dropout_scales_the_previous_output(cell_class):
    cell = cell_class(5, recurrent_dropout=0.75, seed=1)
    mask = to_numpy(cell.recurrent_mask(40, training=True))
    assert mask.shape == (40, 5)
    assert set(np.unique(mask)) == {0.0, 4.0}
    assert cell.recurrent_mask(40) is None


@cells
@pytest.mark.parametrize("where", ["dropout", "recurrent_dropout"])
def test_the_same_seed_draws_the_same(cell_class, where):
    def outputs(seed):
        cell = cell_class(
            5, seed=seed, kernel_initializer="ones", recurrent_initializer="ones",
            activation="linear", **{where: 0.5},
        )  # fmt: skip
        states = [state + 1 for state in cell.get_initial_state(3)]
        return [to_numpy(cell(X, states, training=True)[0]) for _ in range(2)]

    first, second = outputs(3)
    again = outputs(3)
    np.testing.assert_array_equal(first, again[0])
    np.testing.assert_array_equal(second, again[1])
    assert (first != second).any()
    assert (outputs(4)[0] != first).any()


@cells
def test_initial_state(cell_class):
    states = cell_class(5, dtype="float16").get_initial_state(3)
    assert len(states) == (2 if cell_class is kseq.layers.LSTMCell else 1)
    for state in states:
        assert tuple(state.shape) == (3, 5)
        assert keras.backend.standardize_dtype(state.dtype) == "float16"
        assert not to_numpy(state).any()


@cells
@pytest.mark.parametrize("units", [0, -1, 2.0, True, "4", None])
def test_units_must_be_a_size(cell_class, units):
    with pytest.raises(ValueError, match=r"`units` must be a positive integer\. Rec"):
        cell_class(units)


@cells
@pytest.mark.parametrize("name", ["dropout", "recurrent_dropout"])
@pytest.mark.parametrize("rate", [1.0, -0.1, "0.1", None])
def test_rates_must_be_probabilities(cell_class, name, rate):
    with pytest.raises(
        ValueError, match=rf"`{name}` must be a probability in \[0, 1\)"
    ):
        cell_class(5, **{name: rate})


@cells
def test_the_width_of_the_inputs_must_be_known(cell_class):
    with pytest.raises(ValueError, match=r"last axis .* must be known\. .*\(2, None\)"):
        cell_class(5).build((2, None))


def test_a_base_cell_has_no_step():
    from kseq.layers.recurrent.cell import RecurrentCell

    class Half(RecurrentCell):
        num_gates = 1

    with pytest.raises(NotImplementedError, match="Half must implement `step`"):
        Half(5)(X, [np.zeros((3, 5), "float32")])
