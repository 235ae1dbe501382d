"""The rotation of queries and keys."""

import numpy as np
import pytest
from helpers import DTYPES, assert_close, gradients, to_numpy
from keras import ops
from reference.differences import numeric_gradients
from reference.positions import plain, rotated

from kseq.ops import apply_rotary, rotary_angles, rotary_frequencies

B, T, H, K = 2, 5, 3, 8
POSITIONS = np.array([[0, 1, 2, 3, 4], [7, 300, 2, 2, 40_000]])
BOTH = pytest.mark.parametrize(
    "interleaved", [False, True], ids=["half-split", "interleaved"]
)


def rotate(x, positions, width=None, interleaved=False, gain=1.0):
    theta = rotary_frequencies(width or x.shape[-1])
    cos, sin = rotary_angles(positions, theta, gain, str(x.dtype.name))
    return apply_rotary(x, cos, sin, interleaved=interleaved)


def normal(seed, dtype="float32"):
    return np.random.default_rng(seed).normal(size=(B, T, H, K)).astype(dtype)


@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [2, 6, 8])
def test_reference(width, dtype, interleaved):
    x = normal(width, dtype)
    for positions in (POSITIONS, POSITIONS[1]):
        rows = np.broadcast_to(positions, (B, T))
        want = rotated(x, rows, plain(width, 1e4), interleaved, gain=1.3)
        got = rotate(ops.convert_to_tensor(x), positions, width, interleaved, 1.3)
        assert_close("rotated", got, want, dtype)


@pytest.mark.parametrize(
    ("interleaved", "want"),
    [
        (True, [-1.27223251, -1.83886499, 2.8786681, 4.08818664]),
        (False, [-1.41335252, 1.87911807, -2.82885748, 4.05819114]),
    ],
    ids=["interleaved", "half-split"],
)
def test_by_hand_the_two_layouts(interleaved, want):
    """d = 4, position 3, x = 1 2 3 4."""
    x = ops.convert_to_tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    got = rotate(x, [3], interleaved=interleaved)
    assert_close("rotated", got, np.reshape(want, (1, 1, 1, 4)))


@BOTH
@pytest.mark.parametrize("mode", ["eager", "compiled", "forward"])
def test_gradient(interleaved, mode):
    """By central differences, in float64."""
    x = normal(0)[:1, :2]
    theta = plain(6, 1e4)
    places = np.arange(x.size)
    weights = np.cos(places * 1.7 + 0.3).reshape(x.shape)

    def loss(x):
        return np.sum(weights * rotated(x, POSITIONS[1:, :2], theta, interleaved))

    want = numeric_gradients(loss, [x])
    positions = ops.convert_to_tensor(POSITIONS[1:, :2], "int32")
    _, (dx, _), _ = gradients(
        lambda x, p: rotate(x, p, 6, interleaved), [x, positions], [], mode=mode
    )
    assert_close("dx", dx, want[0], gradient=True)


@BOTH
@pytest.mark.parametrize("start", [0, 17, 1_000_000, 2**24])
def test_products_depend_on_the_difference_only(interleaved, start):
    """At any start, and norms are kept."""
    query, key = (ops.convert_to_tensor(normal(seed)) for seed in (1, 2))

    def turned(first):
        q = to_numpy(rotate(query, np.arange(T) + first + 3, None, interleaved))
        k = to_numpy(rotate(key, np.arange(T) + first, None, interleaved))
        return q, np.einsum("bthk,bshk->bhts", q, k)

    q, products = turned(start)
    assert_close("products", products, turned(5)[1])
    norms = np.linalg.norm(to_numpy(query), axis=-1)
    assert_close("norms", np.linalg.norm(q, axis=-1), norms)
    assert np.abs(products - np.einsum("bthk,bshk->bhts", query, key)).max() > 0.1


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_precision_is_rounded_once(half):
    x = ops.cast(normal(3), half)
    cos, sin = rotary_angles(POSITIONS, rotary_frequencies(K))
    got = apply_rotary(x, cos, sin)
    want = ops.cast(apply_rotary(ops.cast(x, "float32"), cos, sin), half)
    assert np.array_equal(to_numpy(got), to_numpy(want))
    assert got.dtype == x.dtype


def test_shapes_are_checked():
    cos, sin = rotary_angles(np.arange(T), rotary_frequencies(K + 2))
    with pytest.raises(ValueError, match=r"The rotated width must.*rotary_dim=10"):
        apply_rotary(normal(0), cos, sin)
    with pytest.raises(ValueError, match=r"`x` must have shape \(B, T, H, K\)"):
        apply_rotary(normal(0)[0], cos, sin)
