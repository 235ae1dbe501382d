"""LayerNormLSTMCell: the worked step, and what the norms are taken over."""

import numpy as np
import pytest
from helpers import assert_close, set_weights_by_seed, to_numpy
from reference.cell_variants import layer_norm

import kseq

K = np.arange(16)
KERNEL = np.round(np.sin(K + 1), 3).reshape(2, 8)
RECURRENT = np.round(np.cos(K), 3).reshape(2, 8)
BIAS = np.array([0, 0, 1, 1, 0, 0, 0, 0])
X, H, C = np.array([[1.0, -0.5]]), np.array([[0.2, -0.1]]), np.array([[0.3, 0.4]])


def worked(**options):
    """W[k] = round(sin(k + 1), 3), U[k] = round(cos(k), 3), gains 1, shifts 0."""
    cell = kseq.layers.LayerNormLSTMCell(2, **options)
    cell.build((1, 2))
    cell.set_weights([KERNEL, RECURRENT, BIAS, *cell.get_weights()[3:]])
    return cell


def test_a_step_worked_in_float64():
    """Ba et al. (2016), supplementary material; the new c is carried as it is."""
    output, (h, c) = worked()(X, [H, C])
    assert_close("output", output, [[0.51997321, -0.65121475]])
    assert_close("h", h, [[0.51997321, -0.65121475]])
    assert_close("c", c, [[-0.5789369, -0.72747935]])
    assert_close("LN(c)", layer_norm(to_numpy(c)[0], 1), [0.92007428, -0.92007428])


def test_epsilon_is_in_the_root():
    near, far = worked(epsilon=1e-3), worked(epsilon=4.0)
    assert far.get_config()["epsilon"] == 4.0
    c = [to_numpy(cell(X, [H, C])[1][1])[0] for cell in (near, far)]
    x, h = X[0] @ KERNEL, H[0] @ RECURRENT
    i, f, g, _ = np.split(layer_norm(x, 1, 4.0) + layer_norm(h, 1, 4.0) + BIAS, 4)
    want = C[0] / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
    assert_close("c", c[1], want)
    assert np.abs(c[0] - c[1]).max() > 0.1


@pytest.mark.parametrize("what", ["inputs", "h"])
def test_scale_and_offset_of_a_norm_do_not_matter(what):
    """Of one norm over all 4U columns: an offset of one gate's columns does."""
    cell = kseq.layers.LayerNormLSTMCell(3, epsilon=1e-12)
    cell.build((2, 5))
    weights = set_weights_by_seed(cell, 0)
    rng = np.random.default_rng(1)
    x, h, c = (rng.normal(size=(2, n)).astype("float32") for n in (5, 3, 3))
    want = cell(x, [h, c])[1]
    scaled = [7 * x, [h, c]] if what == "inputs" else [x, [7 * h, c]]
    assert_close("scaled", cell(*scaled)[1], want)
    index = ["inputs", "h"].index(what)
    for columns, same in ((slice(None), True), (slice(0, 3), False)):
        moved = [w.copy() for w in weights]
        moved[index][:, columns] += 0.5
        cell.set_weights(moved)
        got = to_numpy(cell(x, [h, c])[0])
        assert (np.abs(got - to_numpy(want[0])).max() < 1e-4) == same


def test_first_weights():
    """Gains are 1 and shifts 0, but for the forget gate's."""
    cell = kseq.layers.LayerNormLSTMCell(3)
    cell.build((2, 5))
    first = {w.name: to_numpy(w) for w in cell.weights[3:]}
    shapes = {
        "kernel_gamma": 12, "recurrent_gamma": 12, "state_gamma": 3, "state_beta": 3
    }  # fmt: skip
    assert {name: len(value) for name, value in first.items()} == shapes
    for name, value in first.items():
        assert_close(name, value, np.full(value.shape, "gamma" in name))
