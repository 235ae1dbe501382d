"""ProjectedLSTM against torch.nn.LSTM with `proj_size`, and its errors."""

import numpy as np
import pytest
from helpers import assert_close, gradients, set_weights_by_seed, weighted_sum

import kseq

B, T, D, U, R = 2, 5, 3, 7, 4


def make(**options):
    layer = kseq.layers.ProjectedLSTM(
        U, R, return_sequences=True, return_state=True, **options
    )
    layer.build((B, T, D))
    return layer


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")
def test_equals_torch():
    """Outputs, states, and the gradients of inputs, states and weights."""
    torch = pytest.importorskip("torch")
    layer = make()
    kernel, recurrent, bias, projection = set_weights_by_seed(layer, 0)
    theirs = torch.nn.LSTM(D, U, proj_size=R, batch_first=True)
    given = (kernel.T, recurrent.T, bias, np.zeros_like(bias), projection.T)
    for parameter, value in zip(theirs.parameters(), given, strict=True):
        parameter.data = torch.tensor(value)
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=s).astype("float32") for s in ((B, T, D), (B, R), (B, U))]
    x, h, c = (torch.tensor(a, requires_grad=True) for a in arrays)
    outputs, (last_h, last_c) = theirs(x, (h[None], c[None]))
    want = [outputs, last_h[0], last_c[0]]
    for index, y in enumerate(want):
        weights = np.cos(np.arange(y.numel()) * 1.7 + index + 0.3).reshape(y.shape)
        (y * torch.tensor(weights, dtype=y.dtype)).sum().backward(retain_graph=True)
    got, d_inputs, d_weights = gradients(
        lambda x, *states: layer(x, initial_state=list(states)), arrays,
        layer.trainable_variables, mode="compiled", loss=weighted_sum,
    )  # fmt: skip
    assert_close("outputs", got, [y.detach().numpy() for y in want])
    assert_close("inputs", d_inputs, [t.grad.numpy() for t in (x, h, c)], gradient=True)
    found = [p.grad.numpy() for p in theirs.parameters()]
    want = [found[0].T, found[1].T, found[2], found[4].T]
    assert_close("weights", d_weights, want, gradient=True)


def test_sizes():
    layer = make()
    shapes = [tuple(w.shape) for w in layer.weights]
    assert shapes == [(D, 4 * U), (R, 4 * U), (4 * U,), (U, R)]
    assert (layer.units, layer.output_size, layer.state_size) == (U, R, [R, U])
    want = [(B, T, R), (B, R), (B, U)]
    assert [tuple(s) for s in layer.compute_output_shape((B, T, D))] == want
    states = layer.cell.get_initial_state(B)
    assert [tuple(s.shape) for s in states] == want[1:]


def test_a_projection_on_itself_is_an_lstm():
    """P = 1: the states are those of LSTMCell with the same weights."""
    cell, plain = kseq.layers.ProjectedLSTMCell(U, U), kseq.layers.LSTMCell(U)
    plain.build((B, D))
    cell.build((B, D))
    cell.set_weights([*set_weights_by_seed(plain, 0), np.eye(U)])
    rng = np.random.default_rng(1)
    x, h, c = (rng.normal(size=(B, n)).astype("float32") for n in (D, U, U))
    assert_close("states", cell(x, [h, c])[1], plain(x, [h, c])[1])


def test_the_initializer_of_the_projection():
    cell = kseq.layers.ProjectedLSTMCell(U, R, projection_initializer="ones")
    cell.build((B, D))
    assert_close("P", cell.projection_kernel, np.ones((U, R)))
    again = kseq.layers.ProjectedLSTMCell.from_config(cell.get_config())
    assert again.get_config() == cell.get_config()


@pytest.mark.parametrize("size", [0, 2.0, None])
def test_proj_units_must_be_a_size(size):
    with pytest.raises(ValueError, match="`proj_units` must be a positive integer"):
        kseq.layers.ProjectedLSTMCell(U, size)
    with pytest.raises(ValueError, match="`units` must be a positive integer"):
        kseq.layers.ProjectedLSTM(size, R)
