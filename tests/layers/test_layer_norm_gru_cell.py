"""LayerNormGRUCell: which columns are normalized together, and which shifts count."""

import numpy as np
import pytest
from helpers import assert_close, set_weights_by_seed, to_numpy
from reference.cell_variants import layer_norm

import kseq

D, U = 5, 3


def make(**options):
    cell = kseq.layers.LayerNormGRUCell(U, **options)
    cell.build((2, D))
    weights = set_weights_by_seed(cell, 0)
    rng = np.random.default_rng(1)
    x, h = (rng.normal(size=(2, n)).astype("float32") for n in (D, U))
    return cell, weights, x, h


def test_a_step_worked_by_hand():
    """One unit: LN of n is 0; LN of two columns z, r is +-d / sqrt(d^2 + epsilon)."""
    cell = kseq.layers.LayerNormGRUCell(1)
    cell.build((1, 1))
    kernel, recurrent = np.array([[0.5, -0.3, 9.0]]), np.array([[0.2, 0.6, -9.0]])
    bias, gains = np.array([0.1, -0.2, 0.3]), np.ones(3)
    cell.set_weights([kernel, recurrent, bias, gains, gains, np.array([0.4])])
    x, h = 1.0, 0.5
    first = 0.4 / np.sqrt(0.16 + 1e-3)  # x W: (.5, -.3), mean .1
    second = -0.1 / np.sqrt(0.01 + 1e-3)  # h U: (.1, .3), mean .2
    z = 1 / (1 + np.exp(-(first + second + 0.1)))
    r = 1 / (1 + np.exp(first + second + 0.2))
    want = z * h + (1 - z) * np.tanh(0.3 + r * 0.4)
    output, (state,) = cell(np.array([[x]]), [np.array([[h]])])
    assert_close("output", output, [[want]])
    assert_close("state", state, [[want]])


@pytest.mark.parametrize("index", [0, 1], ids=["kernel", "recurrent_kernel"])
@pytest.mark.parametrize(
    ("columns", "same"),
    [
        (slice(0, 2 * U), True),  # z and r together
        (slice(2 * U, None), True),  # n
        (slice(0, U), False),  # z alone
        (slice(None), True),
    ],
    ids=["gates", "new", "update", "all"],
)
def test_norms_are_over_both_gates_and_over_the_new_state(index, columns, same):
    """An offset of all the columns of a norm changes nothing."""
    cell, weights, x, h = make(epsilon=1e-12)
    want = to_numpy(cell(x, [h])[0])
    weights[index][:, columns] += 0.5
    cell.set_weights(weights)
    got = to_numpy(cell(x, [h])[0])
    assert (np.abs(got - want).max() < 1e-4) == same


def test_the_reset_gate_scales_the_shift_of_the_recurrent_norm():
    """With r = 0 neither U_n nor its shift counts; with z = 0 h is n."""
    cell, weights, x, h = make()
    weights[2][:U], weights[2][U : 2 * U] = -50, -50  # z and r are 0
    cell.set_weights(weights)
    n = [layer_norm(row @ weights[0][:, 2 * U :], weights[3][2 * U :]) for row in x]
    assert_close("n", cell(x, [h])[0], np.tanh(np.stack(n) + weights[2][2 * U :]))


def test_first_weights():
    cell = kseq.layers.LayerNormGRUCell(U)
    cell.build((2, D))
    first = {w.name: to_numpy(w) for w in cell.weights[2:]}
    sizes = {
        "bias": 9, "kernel_gamma": 9, "recurrent_gamma": 9, "recurrent_beta": 3
    }  # fmt: skip
    assert {name: len(value) for name, value in first.items()} == sizes
    for name, value in first.items():
        assert_close(name, value, np.full(value.shape, "gamma" in name))
