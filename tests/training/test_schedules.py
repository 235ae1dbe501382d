"""Learning rates by hand, in the compiled step, saved and loaded."""

import keras
import numpy as np
import pytest

from kseq.training import InverseSqrt, WarmupStableDecay


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 1.746928e-7),  # as step 1
        (1, 1.746928e-7),
        (4000, 6.987712e-4),
        (16000, 3.493856e-4),
    ],
)
def test_the_rate_of_the_transformer(step, rate):
    """Vaswani et al., eq. 3, with d = 512 and w = 4000."""
    np.testing.assert_allclose(InverseSqrt(512)(step), rate, rtol=1e-6)
    np.testing.assert_allclose(InverseSqrt(512, scale=2.0)(step), 2 * rate, rtol=1e-6)


@pytest.mark.parametrize(
    ("step", "share"),
    [(0, 0), (50, 0.5), (100, 1), (500, 1), (800, 1), (900, 0.5), (1000, 0), (1001, 0)],
)
def test_warmup_stable_decay(step, share):
    rate = WarmupStableDecay(3.0, 1000, warmup_steps=100, decay_steps=200)
    np.testing.assert_allclose(rate(step), 3 * share, rtol=1e-6)


def test_without_warmup_and_decay():
    rate = WarmupStableDecay(2.0, 10, warmup_steps=0, decay_steps=0)
    assert [float(rate(step)) for step in (0, 9, 10)] == [2, 2, 0]


@pytest.mark.parametrize(
    "schedule",
    [
        InverseSqrt(4, 2, scale=0.5),
        WarmupStableDecay(0.5, 9, warmup_steps=2, decay_steps=3),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_trains_and_is_saved_with_the_model(schedule, tmp_path):
    """SGD on the loss w x: each step takes off what the schedule says."""
    inputs = keras.Input((1,))
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Model(inputs, layer(inputs))
    model.compile(keras.optimizers.SGD(schedule), loss=lambda y, x: x, jit_compile=True)
    model.fit(np.ones((3, 1)), np.ones((3, 1)), batch_size=1, verbose=0)
    want = -sum(float(schedule(step)) for step in range(3))
    np.testing.assert_allclose(model.get_weights()[0], [[want]], rtol=1e-5)
    model.compile(model.optimizer, loss="mse")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    again = loaded.optimizer.get_config()["learning_rate"]
    assert again["registered_name"] == f"kseq>{type(schedule).__name__}"
    assert again["config"] == schedule.get_config()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: InverseSqrt(0), "`hidden_dim` must be a positive integer"),
        (lambda: InverseSqrt(4, 0), "`warmup_steps` must be a positive integer"),
        (lambda: InverseSqrt(4, scale=-1), "`scale` must be a number of at least 0"),
        (lambda: wsd(learning_rate=-1), "`learning_rate` must be a number of at"),
        (lambda: wsd(total_steps=0), "`total_steps` must be a positive integer"),
        (lambda: wsd(warmup_steps=-1), "`warmup_steps` must be a number of at least"),
        (lambda: wsd(decay_steps=None), "`decay_steps` must be a number of at least"),
        (lambda: wsd(warmup_steps=8), r"must fit into `total_steps`.*warmup_steps=8"),
    ],
)
def test_arguments_are_checked(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def wsd(**change):
    options = dict(learning_rate=1.0, total_steps=10, warmup_steps=2, decay_steps=3)
    return WarmupStableDecay(**{**options, **change})
