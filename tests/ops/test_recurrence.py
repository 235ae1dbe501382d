"""The recurrence of given gates: two lanes at once, with the dropout mask of h."""

import numpy as np
import pytest
from helpers import assert_close, cotangent, gradients
from reference import cells
from reference.differences import numeric_gradients

from kseq.ops.gates import GRUGates, LSTMGates, SimpleGates
from kseq.ops.recurrence import Lane, recurrence

T, B, U = 4, 3, 2
# gates, widths of what comes from the inputs, states
KINDS = {
    "simple": (SimpleGates(), [U], 1),
    "gru": (GRUGates(), [2 * U, U], 1),
    "lstm": (LSTMGates(), [4 * U], 2),
}


def arrays(kind, seed):
    """What a lane runs over, in its order, without masks."""
    _, widths, count = KINDS[kind]
    rng = np.random.default_rng(seed)
    columns = sum(widths)
    shapes = [(T, B, n) for n in widths] + [(B, U)] * count
    shapes += [(U, columns), (columns,)]
    return [rng.normal(0, 0.7, shape).astype("float32") for shape in shapes]


def lane(kind, values, dropped):
    _, widths, count = KINDS[kind]
    split = len(widths)
    states = list(values[split : split + count])
    return Lane(list(values[:split]), states, *values[split + count :], dropped)


def reference(kind, values, dropped):
    """The cells of the papers with x W given, and h * m in the place of h in h U."""
    _, widths, count = KINDS[kind]
    projected = np.concatenate(values[: len(widths)], axis=-1)
    states = list(values[len(widths) : len(widths) + count])
    kernel, bias = values[-2:]
    outputs = np.zeros((T, B, U))
    for t in range(T):
        h = states[0] * dropped
        pre = h @ kernel + bias
        if kind == "simple":
            states = [np.tanh(projected[t] + pre)]
        elif kind == "lstm":
            i, f, g, o = np.split(projected[t] + pre, 4, axis=-1)
            c = cells.sigmoid(f) * states[1] + cells.sigmoid(i) * np.tanh(g)
            states = [cells.sigmoid(o) * np.tanh(c), c]
        else:
            xz, xr, xn = np.split(projected[t], 3, axis=-1)
            hz, hr, hn = np.split(pre, 3, axis=-1)
            z, r = cells.sigmoid(xz + hz), cells.sigmoid(xr + hr)
            states = [z * states[0] + (1 - z) * np.tanh(xn + r * hn)]
        outputs[t] = states[0]
    return [outputs, *states]


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_lanes_with_a_dropout_mask(kind, mode):
    gates = KINDS[kind][0]
    first, second = arrays(kind, 0), arrays(kind, 1)
    dropped = np.array([[2, 0], [0, 2], [2, 2]], "float32")
    count = len(first)

    def run(*values):
        values, dropped = values[:-1], values[-1]
        lanes = [lane(kind, values[:count], dropped), lane(kind, values[count:], None)]
        return recurrence(gates, lanes)

    def expected(*values):
        values = [np.asarray(v, "float64") for v in values]
        ones = np.ones((B, U))
        return [
            *reference(kind, values[:count], dropped),
            *reference(kind, values[count:], ones),
        ]

    def loss(*values):
        results = expected(*values)
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(results))

    values = [*first, *second]
    outputs, found, _ = gradients(run, values, [], mode=mode, extras=[dropped])
    flat = [y for outputs, last in outputs for y in (outputs, *last)]
    assert_close("outputs", flat, expected(*values))
    assert_close("gradients", found, numeric_gradients(loss, values), gradient=True)
