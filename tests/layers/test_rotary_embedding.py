"""RotaryEmbedding: positions of every form, scalings, cached steps."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, assert_same, compiled, to_numpy
from keras import ops
from reference import positions as reference

import kseq
from kseq.ops import DynamicNTKScaling, Llama3Scaling, YaRNScaling

B, T, H, K = 2, 5, 3, 8
X = np.random.default_rng(0).normal(size=(B, T, H, K))
STEPS = np.arange(T)


def want(positions, theta=None, **options):
    theta = reference.plain(K, 1e4) if theta is None else theta
    return reference.rotated(X, np.broadcast_to(positions, (B, T)), theta, **options)


@pytest.fixture(scope="module")
def layer():
    return kseq.layers.RotaryEmbedding()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("options", "theta", "more"),
    [
        ({}, reference.plain(8, 1e4), {}),
        ({"max_wavelength": 50.0}, reference.plain(8, 50.0), {}),
        ({"rotary_dim": 6}, reference.plain(6, 1e4), {}),
        ({"interleaved": True}, reference.plain(8, 1e4), {"interleaved": True}),
        (
            {"scaling": YaRNScaling(3.0, 64)},
            reference.yarn_as_shipped(8, 1e4, 3, 64),
            {"gain": 0.1 * np.log(3) + 1},
        ),
        ({"scaling": Llama3Scaling(3.0, 64)}, reference.llama3(8, 1e4, 3, 64), {}),
    ],
    ids=["plain", "base", "width", "interleaved", "yarn", "llama3"],
)
def test_reference(options, theta, more, dtype):
    layer = kseq.layers.RotaryEmbedding(**options, dtype=dtype)
    got = layer(X.astype(dtype))
    assert_close("rotated", got, want(STEPS, theta, **more), dtype)


@pytest.mark.parametrize(
    ("given", "positions"),
    [
        ({"start_index": 7}, STEPS + 7),
        ({"start_index": np.int32(7)}, STEPS + 7),
        ({"start_index": [7, 1_000_000]}, np.array([[7], [1_000_000]]) + STEPS),
        ({"positions": STEPS[::-1] * 3}, STEPS[::-1] * 3),
        ({"positions": np.stack([STEPS, 9 * STEPS])}, np.stack([STEPS, 9 * STEPS])),
    ],
    ids=["scalar", "array", "(B,)", "(T,)", "(B, T)"],
)
@pytest.mark.parametrize("run", ["eager", "compiled"])
def test_positions(layer, run, given, positions):
    ((name, value),) = given.items()
    call = lambda x, value: layer(x, **{name: value})
    if run == "compiled":
        call = kseq.backend.compiled(call, [])
        value = np.asarray(value, "int32")
    assert_close("rotated", call(X.astype("float32"), value), want(positions))


def test_positions_are_unambiguous_when_batch_and_length_are_equal(layer):
    """One (2,) is a start for each row, the other a position for each step."""
    x = X[:, :2].astype("float32")
    theta = reference.plain(K, 1e4)
    for name, rows in (
        ("start_index", [[3, 4], [11, 12]]),
        ("positions", [[3, 11], [3, 11]]),
    ):
        got = layer(x, **{name: np.array([3, 11])})
        assert_close(name, got, reference.rotated(x, np.array(rows), theta))


def test_unknown_batch_and_time(layer):
    inputs = keras.Input((None, H, K))
    start = keras.Input((), dtype="int32")
    model = keras.Model([inputs, start], layer(inputs, start_index=start))
    assert model.output_shape == (None, None, H, K)
    got = model([X.astype("float32"), np.array([2, 7])])
    assert_close("rotated", got, want(np.array([[2], [7]]) + STEPS))


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_angle_is_exact_at_a_million(dtype):
    """Half precision rounds the result, not the angle."""
    layer = kseq.layers.RotaryEmbedding(dtype=dtype)
    x = to_numpy(ops.cast(X, layer.compute_dtype))
    far = (
        want(STEPS + 1_000_000)
        if dtype == "float32"
        else reference.rotated(
            x, np.broadcast_to(STEPS + 1_000_000, (B, T)), reference.plain(K, 1e4)
        )
    )
    got = layer(ops.convert_to_tensor(x), start_index=1_000_000)
    assert_close("rotated", got, far, layer.compute_dtype)


@pytest.mark.parametrize(
    "scaling",
    [None, YaRNScaling(2, 3), DynamicNTKScaling(2, 3, length=T)],
    ids=["plain", "yarn", "dynamic, frozen"],
)
def test_steps_equal_the_full_run(scaling):
    """Each token alone, after a cache of other lengths in each row."""
    layer = kseq.layers.RotaryEmbedding(scaling=scaling)
    x = X.astype("float32")
    full = to_numpy(layer(x, start_index=[0, 4]))
    run = kseq.backend.compiled(
        lambda x, start: layer(x, start_index=start), layer.variables
    )
    for t in range(T):
        step = run(x[:, t : t + 1], np.array([t, 4 + t], "int32"))
        assert_close(f"step {t}", step, full[:, t : t + 1])


def test_dynamic_ntk_takes_the_length_of_the_call():
    """Frozen at that length, or not: the same. Up to L nothing changes."""
    x = X.astype("float32")
    free = kseq.layers.RotaryEmbedding(scaling=DynamicNTKScaling(2, 3))
    frozen = kseq.layers.RotaryEmbedding(scaling=DynamicNTKScaling(2, 3, length=T))
    theta = reference.dynamic_ntk(K, 1e4, 2, 3, T)
    assert_close("free", free(x), want(STEPS, theta))
    assert_same("frozen", frozen(x), free(x))
    plain = kseq.layers.RotaryEmbedding()
    assert_same("short", free(x[:, :3]), plain(x[:, :3]))
    assert np.abs(to_numpy(free(x)) - to_numpy(plain(x))).max() > 1e-2


@pytest.mark.parametrize(
    "given", [{"start_index": 1}, {"positions": STEPS}], ids=["start", "positions"]
)
def test_dynamic_ntk_refuses_to_guess_a_length(given):
    layer = kseq.layers.RotaryEmbedding(scaling=DynamicNTKScaling(2, 3))
    with pytest.raises(ValueError, match=r"needs the number of tokens.*`length`"):
        layer(X.astype("float32"), **given)


def test_the_mask_is_passed_on(layer):
    mask = np.array([[True, False], [False, True]])
    assert layer.compute_mask(X[:, :2], mask) is mask


def test_padding_and_order():
    """A NaN stays where it is."""
    x = X.astype("float32")
    dirty = x.copy()
    dirty[0, 3:] = np.nan
    layer = kseq.layers.RotaryEmbedding(interleaved=True)
    got, clean = to_numpy(compiled(layer)(dirty)), to_numpy(compiled(layer)(x))
    assert_same("real tokens", got[0, :3], clean[0, :3])
    assert_same("other row", got[1], clean[1])


def test_from_config_keeps_the_scaling():
    layer = kseq.layers.RotaryEmbedding(
        5e5, rotary_dim=4, interleaved=True, scaling=Llama3Scaling(8.0, 16)
    )
    again = kseq.layers.RotaryEmbedding.from_config(layer.get_config())
    assert again.scaling == layer.scaling
    assert_same("rotated", again(X, start_index=3), layer(X, start_index=3))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"positions": STEPS - 1}, "`positions` must not be negative.*smallest=-1"),
        ({"start_index": -2}, "`start_index` must not be negative.*smallest=-2"),
        ({"start_index": [0, -2]}, "`start_index` must not be negative"),
        ({"positions": STEPS[:4]}, r"`positions` .* \(T,\) or \(B, T\).*T=5"),
        ({"positions": np.zeros((3, T), int)}, r"`positions` must have .*B=2, T=5"),
        ({"positions": 3}, r"`positions` must have shape \(T,\) or \(B, T\)"),
        ({"positions": np.zeros((B, T, 1), int)}, "`positions` must have shape"),
        ({"start_index": STEPS}, r"`start_index` .* \(\) or \(B,\)\. .*\(5,\), B=2"),
        ({"start_index": np.zeros((B, T), int)}, "`start_index` must have shape"),
        ({"start_index": 3, "positions": STEPS}, "Give `positions` or `start_index`"),
        (
            {"start_index": np.zeros(B, int), "positions": STEPS},
            "Give `positions` or `start_index`",
        ),
    ],
)
def test_values_are_checked(layer, given, words):
    with pytest.raises(ValueError, match=words):
        layer(X.astype("float32"), **given)


@pytest.mark.parametrize("name", ["positions", "start_index"])
def test_kinds_are_checked(layer, name):
    value = STEPS.astype("float32") if name == "positions" else 1.0
    with pytest.raises(TypeError, match=f"`{name}` must be integers"):
        layer(X.astype("float32"), **{name: value})


def test_arguments_are_checked():
    x = X.astype("float32")
    with pytest.raises(ValueError, match=r"`inputs` must have shape \(B, T, H, K\)"):
        kseq.layers.RotaryEmbedding()(x[0])
    with pytest.raises(ValueError, match=r"`rotary_dim` must not exceed.*rotary_dim=9"):
        kseq.layers.RotaryEmbedding(rotary_dim=9)(x)
    with pytest.raises(ValueError, match=r"A width of pairs must be even.*width=7"):
        kseq.layers.RotaryEmbedding()(x[..., :7])
    with pytest.raises(ValueError, match="A width of pairs must be even"):
        kseq.layers.RotaryEmbedding(rotary_dim=5)(x)
    with pytest.raises(ValueError, match="`rotary_dim` must be a positive integer"):
        kseq.layers.RotaryEmbedding(rotary_dim=0)
    with pytest.raises(ValueError, match="`max_wavelength` must be greater than 1"):
        kseq.layers.RotaryEmbedding(0.5)(x)
    with pytest.raises(TypeError, match="`scaling` must be a RotaryScaling"):
        kseq.layers.RotaryEmbedding(scaling="yarn")
