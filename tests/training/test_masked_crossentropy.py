"""Loss and metrics over real tokens."""

import keras
import numpy as np
import pytest
from keras import ops

from kseq.backend import compiled
from kseq.training import (
    MaskedCrossentropy,
    Perplexity,
    TokenAccuracy,
    TokenCrossentropy,
)


def token_losses(logits, targets, smoothing=0.0):
    """Float64: -log softmax of the target, mixed with the uniform distribution."""
    logits = np.asarray(logits, "float64")
    shifted = logits - logits.max(-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    picked = np.take_along_axis(log_probs, targets[..., None], -1)[..., 0]
    return -(1 - smoothing) * picked - smoothing * log_probs.mean(-1)


def batch(seed, rows=3, length=5, classes=7):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, length, classes)).astype("float32")
    targets = rng.integers(1, classes, size=(rows, length))
    targets[0, 3:] = targets[1, 1:] = 0
    return logits, targets


def two_rows():
    """Four tokens of loss 1 and one of loss 9: logits [0, x], target 0 or 1."""
    far = [np.log(np.expm1(loss)) for loss in (1.0, 9.0)]
    logits = np.zeros((2, 4, 3), "float32")
    logits[..., 0] = -1e9  # never probable
    logits[0, :, 2], logits[1, :, 2] = far
    return logits, np.array([[1, 1, 1, 1], [1, 0, 0, 0]])


def test_long_and_short_rows_count_by_token():
    """4 tokens of loss 1 and one of loss 9 give 13/5, not the 5 of a mean of means."""
    logits, targets = two_rows()
    np.testing.assert_allclose(MaskedCrossentropy()(targets, logits), 2.6, rtol=1e-5)


def test_metric_is_the_same_in_one_batch_and_in_two():
    logits, targets = two_rows()
    metric = TokenCrossentropy()
    for row in range(2):
        metric.update_state(targets[row : row + 1], logits[row : row + 1])
    np.testing.assert_allclose(metric.result(), 2.6, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_equals_float64(seed, smoothing):
    logits, targets = batch(seed)
    real = targets != 0
    want = token_losses(logits, targets, smoothing)[real].mean()
    got = MaskedCrossentropy(label_smoothing=smoothing)(targets, logits)
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_label_smoothing_mixes_with_all_tokens():
    """Logits 2, 1, 0, target 0, .1: .50760596 over all, .55760596 over the others."""
    loss = MaskedCrossentropy(None, label_smoothing=0.1)
    got = loss(np.array([[0]]), np.array([[[2.0, 1.0, 0.0]]], "float32"))
    np.testing.assert_allclose(got, 0.5076059645, atol=1e-6)


def test_z_loss_adds_the_square_of_the_normalizer():
    logits, targets = batch(0)
    real = targets != 0
    normalizers = np.log(np.exp(logits.astype("float64")).sum(-1))
    want = (token_losses(logits, targets) + 0.1 * normalizers**2)[real].mean()
    got = MaskedCrossentropy(z_loss=0.1)(targets, logits)
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_perplexity_is_that_of_the_mean_loss_of_the_epoch():
    """e^2.6 of losses 1, 1, 1, 1 and 9 in two batches; not (e + e^9) / 2."""
    logits, targets = two_rows()
    metric = Perplexity()
    for row in range(2):
        metric.update_state(targets[row : row + 1], logits[row : row + 1])
    np.testing.assert_allclose(metric.result(), np.exp(2.6), rtol=1e-5)
    metric.reset_state()
    assert float(metric.result()) == 1


@pytest.mark.parametrize("shape", ["tokens", "rows"])
def test_sample_weight_weighs_tokens(shape):
    logits, targets = batch(0)
    rng = np.random.default_rng(9)
    weight = rng.random(targets.shape if shape == "tokens" else len(targets))
    weight[-1] = 0
    full = np.broadcast_to(weight if shape == "tokens" else weight[:, None], (3, 5))
    full = full * (targets != 0)
    want = (token_losses(logits, targets) * full).sum() / full.sum()
    np.testing.assert_allclose(
        MaskedCrossentropy()(targets, logits, weight), want, atol=2e-5
    )
    metric = TokenCrossentropy()
    metric.update_state(targets, logits, weight)
    np.testing.assert_allclose(metric.result(), want, atol=2e-5)
    hits = (logits.argmax(-1) == targets) * full
    accuracy = TokenAccuracy()
    accuracy.update_state(targets, logits, weight)
    np.testing.assert_allclose(accuracy.result(), hits.sum() / full.sum(), atol=2e-5)


def test_padding_may_hold_nan_and_gets_no_gradient():
    logits, targets = batch(0)
    dirty = np.where((targets == 0)[..., None], np.nan, logits).astype("float32")
    loss = MaskedCrossentropy()
    assert float(loss(targets, dirty)) == float(loss(targets, logits))
    clean, got = gradient(loss, targets, logits), gradient(loss, targets, dirty)
    np.testing.assert_array_equal(got, clean)
    assert not got[targets == 0].any()
    for metric in (TokenAccuracy(), TokenCrossentropy()):
        assert float(metric(targets, dirty)) == float(type(metric)()(targets, logits))


def gradient(loss, targets, logits):
    x = ops.convert_to_tensor(logits)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            value = loss(targets, x)
        return tape.gradient(value, x).numpy()
    import jax

    return np.asarray(jax.grad(lambda x: loss(targets, x))(x))


def test_the_keras_mask_of_the_predictions_counts():
    """The mask of an Embedding reaches loss and weight without a pad id."""
    ids = np.array([[3, 4, 0, 0], [5, 0, 0, 0]])
    inputs = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(6, 7, mask_zero=True)(inputs)
    model = keras.Model(inputs, embedded)
    targets = np.array([[1, 0, 6, 6], [2, 6, 6, 6]])
    logits = model(ids)
    want = token_losses(ops.convert_to_numpy(logits), targets)[ids != 0].mean()
    got = MaskedCrossentropy(pad_id=None)(targets, logits)
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_no_real_token_gives_zero():
    logits, targets = batch(0)
    assert float(MaskedCrossentropy()(np.zeros_like(targets), logits)) == 0


def test_half_precision_logits_are_summed_in_float32():
    logits, targets = batch(0)
    half = ops.cast(logits, "bfloat16")
    got = MaskedCrossentropy()(targets, half)
    assert keras.backend.standardize_dtype(got.dtype) == "float32"
    exact = ops.convert_to_numpy(ops.cast(half, "float32"))
    want = token_losses(exact, targets)[targets != 0].mean()
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_fit_reports_the_token_mean_and_a_saved_model_loads(tmp_path):
    logits, targets = two_rows()
    inputs = keras.Input((4, 3))
    model = keras.Model(inputs, keras.layers.Identity()(inputs))
    model.compile(
        loss=MaskedCrossentropy(label_smoothing=0.0),
        metrics=[TokenCrossentropy(), TokenAccuracy()],
        jit_compile=True,
    )
    result = model.evaluate(logits, targets, batch_size=1, verbose=0, return_dict=True)
    np.testing.assert_allclose(result["token_crossentropy"], 2.6, rtol=1e-5)
    whole = model.evaluate(logits, targets, batch_size=2, verbose=0, return_dict=True)
    np.testing.assert_allclose(whole["loss"], 2.6, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    again = loaded.evaluate(logits, targets, verbose=0, return_dict=True)
    assert again == whole


@pytest.mark.parametrize(
    "kind", [MaskedCrossentropy, Perplexity, TokenAccuracy, TokenCrossentropy]
)
def test_config_round_trip(kind):
    own = {"label_smoothing": 0.2, "z_loss": 0.1}
    options = own if kind is MaskedCrossentropy else {}
    first = kind(pad_id=5, name="own", **options)
    config = keras.saving.serialize_keras_object(first)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == first.get_config()
    assert again.pad_id == 5


@pytest.mark.parametrize(("target", "words"), [(7, "largest=7"), (-1, "smallest=-1")])
def test_a_target_without_a_logit_is_named_or_nan(target, words):
    """A named error when eager, NaN in a compiled program."""
    logits, targets = batch(0)
    targets[2, 1] = target
    with pytest.raises(ValueError, match=rf"Target ids must lie in .*{words}"):
        MaskedCrossentropy()(targets, logits)
    run = compiled(MaskedCrossentropy(), [])
    assert np.isnan(run(targets, logits))


@pytest.mark.parametrize("shape", [(3, 4), (2,), (3, 5, 1), (5, 3)], ids=str)
def test_weights_of_another_shape_are_named(shape):
    targets, logits = np.ones((3, 5), "int32"), np.zeros((3, 5, 7), "float32")
    with pytest.raises(ValueError, match=r"`sample_weight` must have shape \(B,\) or"):
        MaskedCrossentropy()(targets, logits, np.ones(shape, "float32"))


@pytest.mark.parametrize("shape", [(3, 5, 1), (3, 5, 7), (3, 4), (15,)], ids=str)
def test_targets_of_another_shape_are_named(shape):
    logits, _ = batch(0)
    with pytest.raises(ValueError, match="must be ids, of the shape of the logits"):
        MaskedCrossentropy()(np.ones(shape, int), logits)
    with pytest.raises(ValueError, match="must be ids, of the shape of the logits"):
        TokenAccuracy()(np.ones(shape, int), logits)


def test_bad_smoothing_is_refused():
    with pytest.raises(ValueError, match=r"`label_smoothing` must be a probability"):
        MaskedCrossentropy(label_smoothing=1.0)


@pytest.mark.parametrize("value", [-0.1, float("nan"), None])
def test_bad_z_loss_is_refused(value):
    with pytest.raises(ValueError, match=r"`z_loss` must be a number of at least 0"):
        MaskedCrossentropy(z_loss=value)
