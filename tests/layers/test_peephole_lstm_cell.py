"""PeepholeLSTMCell: what each gate sees."""

import numpy as np
import pytest
from helpers import assert_close, set_weights_by_seed

import kseq


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("peepholes", "want"),
    [
        # c' = s(f) * .5 + s(i) * tanh(1), h = s(o) * tanh(c'), all biases 0
        ((0, 0, 0), (0.5, 0.5, lambda c: 0.5)),
        ((3, 0, 0), (sigmoid(1.5), 0.5, lambda c: 0.5)),
        ((0, -2, 0), (0.5, sigmoid(-1.0), lambda c: 0.5)),
        ((0, 0, 4), (0.5, 0.5, lambda c: sigmoid(4 * c))),
    ],
    ids=["none", "input", "forget", "output"],
)
def test_a_step_worked_by_hand(peepholes, want):
    """Input and forget gate see the old c = .5, the output gate the new one."""
    cell = kseq.layers.PeepholeLSTMCell(1)
    cell.build((1, 1))
    kernel = np.array([[0.0, 0.0, 1.0, 0.0]])  # g = x = 1
    cell.set_weights([kernel, 0 * kernel, np.zeros(4), *np.reshape(peepholes, (3, 1))])
    i, f, output_gate = want
    c = f * 0.5 + i * np.tanh(1.0)
    h = output_gate(c) * np.tanh(c)
    _, states = cell(np.ones((1, 1)), [np.zeros((1, 1)), np.full((1, 1), 0.5)])
    assert_close("states", states, [[[h]], [[c]]])


def test_without_peepholes_it_is_an_lstm():
    """Which is how it starts."""
    cell, plain = kseq.layers.PeepholeLSTMCell(5), kseq.layers.LSTMCell(5)
    cell.build((2, 3))
    plain.build((2, 3))
    assert not any(w.any() for w in cell.get_weights()[3:])
    weights = set_weights_by_seed(plain, 0)
    cell.set_weights(weights + cell.get_weights()[3:])
    rng = np.random.default_rng(1)
    x, h, c = (rng.normal(size=(2, n)).astype("float32") for n in (3, 5, 5))
    assert_close("states", cell(x, [h, c])[1], plain(x, [h, c])[1])


def test_the_initializer_of_the_peepholes():
    """Each gate draws its own values."""
    cell = kseq.layers.PeepholeLSTMCell(5, peephole_initializer="random_normal")
    cell.build((2, 3))
    values = [tuple(w) for w in cell.get_weights()[3:]]
    assert len(set(values)) == 3
    names = [w.name for w in cell.weights[3:]]
    assert names == ["input_peephole", "forget_peephole", "output_peephole"]
    config = cell.get_config()
    assert config["peephole_initializer"]["class_name"] == "RandomNormal"
    again = kseq.layers.PeepholeLSTMCell.from_config(config)
    assert again.get_config() == config
