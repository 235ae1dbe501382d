"""MonotonicAttention: worked values, exactness, noise, errors."""

import keras
import numpy as np
import pytest
from helpers import assert_close, gradients, to_numpy
from keras import ops
from layers.alignments import B, D, Q, S, T, U, data, make
from reference.alignment import sigmoid, stopping_weights

import kseq


def with_energies(energies, monkeypatch, **options):
    """A layer whose scores are `energies` `(B, T, S)`, whatever it is asked."""
    layer = kseq.layers.MonotonicAttention(1, **options)
    energies = ops.convert_to_tensor(np.asarray(energies, "float32"))
    monkeypatch.setattr(layer, "scores", lambda query, key: energies)
    return layer


def weights_of(layer, alignment=None, **options):
    """Weights `(S,)` of one query over a memory of one row."""
    size = layer.scores(None, None).shape[-1]
    query, memory = np.ones((1, 1, 1), "float32"), np.ones((1, size, 1), "float32")
    alignment = None if alignment is None else [np.float32([alignment])]
    return layer(
        query, memory, alignment=alignment, return_attention_scores=True, **options
    )[1][0, 0]


def test_weights_worked_in_float64(monkeypatch):
    """Raffel et al. (2017), eq. 13 and 14: the first query, then one after it."""
    found, p = None, np.array([[0.2, 0.5, 0.9, 0.4], [0.1, 0.6, 0.3, 0.8]])
    want = [[0.2, 0.4, 0.36, 0.016], [0.02, 0.348, 0.1776, 0.34432]]
    for p_t, want_t, total in zip(p, want, [0.976, 0.88992]):
        layer = with_energies([[np.log(p_t / (1 - p_t))]], monkeypatch)
        found = to_numpy(weights_of(layer, found))
        assert_close("weights", found, want_t)
        assert_close("sum", found.sum(), total)
        found = want_t


def test_entries_after_many_sure_stops(monkeypatch):
    """Where the product of 1 - p underflows, which the closed form divides by."""
    energies = np.array([25.0] * 11 + [0.5, -0.3])
    previous = np.zeros(13)
    previous[11] = 0.75
    layer = with_energies([[energies]], monkeypatch)
    want = stopping_weights(sigmoid(energies), previous)
    assert_close("weights", weights_of(layer, previous), want)
    assert want[11] > 0.4
    passes = np.cumprod(1 - sigmoid(energies[:-1].astype("float32")))
    product = np.concatenate([[1], passes])
    closed = product * np.cumsum(previous / np.clip(product, 1e-10, 1))
    assert (closed * sigmoid(energies))[11] < 1e-3

    def call(alignment):
        return layer(
            np.ones((1, 1, 1), "float32"), np.ones((1, 13, 1), "float32"),
            alignment=[alignment], return_attention_scores=True,
        )[1][0, 0, 11]  # fmt: skip

    _, (gradient,), _ = gradients(call, [np.float32([previous])], [], loss=lambda y: y)
    assert_close("gradient", gradient[0, 11], sigmoid(0.5))
    assert not gradient[0, 12]


def test_a_small_chance_to_pass_is_not_lost(monkeypatch):
    """1 - p is 4e-18 here, where the float32 p is 1."""
    layer = with_energies([[[40.0, 40.0]]], monkeypatch)
    want = np.exp(-40.0)
    np.testing.assert_allclose(to_numpy(weights_of(layer))[1], want, rtol=1e-5)


def test_hidden_entries_are_passed_by():
    """Left, right and interior padding agree with the memory without them."""
    layer, (query, memory) = make("monotonic"), data()
    want = to_numpy(layer(query, memory[:, :3], return_attention_scores=True)[1])
    for places in ([0, 1, 2], [2, 3, 4], [0, 2, 4]):
        padded, mask = np.full((B, S, D), np.nan, "float32"), np.zeros((B, S), bool)
        padded[:, places], mask[:, places] = memory[:, :3], True
        _, weights = layer(query, padded, value_mask=mask, return_attention_scores=True)
        assert_close("weights", to_numpy(weights)[..., places], want)


def test_noise(monkeypatch):
    """Its deviation, from p of 1000 first entries: 4 errors of it are 9 %."""
    layer = with_energies(np.zeros((1000, 1, 2)), monkeypatch, noise=2.0, seed=5)
    query, memory = np.ones((1000, 1, 1), "float32"), np.ones((1000, 2, 1), "float32")

    def first(training):
        options = {"return_attention_scores": True, "training": training}
        return to_numpy(layer(query, memory, **options)[1])[:, 0, 0]

    p = first(training=True)
    noise = np.log(p / (1 - p))
    assert abs(noise.std() - 2) < 0.18
    assert abs(noise.mean()) < 0.25
    assert (first(training=True) != p).mean() > 0.99
    np.testing.assert_array_equal(first(training=False), 0.5)


def test_noise_is_drawn_anew_at_every_step():
    """Of one query asked three times, and of a decoder; p is that at entry 0."""
    layer = kseq.layers.MonotonicAttention(U, seed=5)
    query, memory = data()
    query = query[:, :1].repeat(3, axis=1)
    options = {"return_attention_scores": True, "training": True}
    decoder = kseq.layers.AttentionRNN(
        kseq.layers.AttentionCell(kseq.layers.GRUCell(Q), layer)
    )
    decoder.build(query.shape, memory.shape)
    decoder.cell.cell.set_weights([0 * w for w in decoder.cell.cell.get_weights()])
    for call in (layer, decoder):
        weights = to_numpy(call(query, memory, **options)[1])[:, :, 0]
        p = weights / np.concatenate([np.ones((B, 1)), weights[:, :-1]], axis=1)
        assert np.abs(np.diff(p)).min() > 1e-3


@pytest.mark.parametrize("mode", ["compiled", "forward"])
def test_the_gradient_sees_the_noise_of_its_step(mode):
    """At entry 0, w_t = p_1 .. p_t, so that dw_t / dr = w_t sum_{u <= t} (1 - p_u)."""
    layer = kseq.layers.MonotonicAttention(U, seed=5)
    query, memory = data()
    layer.build(query.shape, memory.shape)
    weights, _, (gradient,) = gradients(
        lambda query: layer(
            query, memory, return_attention_scores=True, training=True
        )[1][:, :, 0],
        [query], [layer.offset], mode=mode, loss=ops.sum,
        state=[layer.seed_generator.state],
    )  # fmt: skip
    p = weights / np.concatenate([np.ones((B, 1)), weights[:, :-1]], axis=1)
    want = (weights * np.cumsum(1 - p, axis=1)).sum()
    assert_close("gradient", gradient, want, gradient=True)


def test_initial_weights():
    layer = kseq.layers.MonotonicAttention(4, initial_offset=-3)
    layer.build((B, T, Q), (B, S, D))
    assert_close("gain", layer.gain, 0.5)  # sqrt(1/4)
    assert_close("offset", layer.offset, -3.0)
    assert [w.name for w in layer.weights].count("offset") == 1


def test_config():
    layer = kseq.layers.MonotonicAttention(3, noise=0.5, initial_offset=-2, seed=7)
    config = layer.get_config()
    assert "normalize" not in config
    again = kseq.layers.MonotonicAttention.from_config(config)
    assert again.get_config() == config
    assert (again.noise, again.initial_offset, again.seed) == (0.5, -2.0, 7)
    assert not hasattr(kseq.layers.MonotonicAttention(3, noise=0), "seed_generator")
    assert keras.saving.get_registered_name(type(layer)) == "kseq>MonotonicAttention"


@pytest.mark.parametrize("noise", [-0.5, "much", float("nan")])
def test_errors(noise):
    with pytest.raises(ValueError, match="`noise` must be a number of at least 0"):
        kseq.layers.MonotonicAttention(3, noise=noise)
