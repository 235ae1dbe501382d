"""`fit` warns of deep Post-LN at a constant learning rate, and of nothing else."""

import keras
import numpy as np
import pytest

import kseq
from kseq.training import InverseSqrt, MaskedCrossentropy

WORDS = r"Post-LN with 7 layers and a constant .*InverseSqrt\(4, warmup_steps=4000\)"
IDS = np.array([[3, 4, 5]])


def fit(
    self, x=None, y=None, batch_size=None, epochs=1, verbose="auto", callbacks=None
):
    """In the place of Keras's, which would compile."""


def build(num_layers=7, placement="post", rate=0.01, **options):
    model = kseq.models.TransformerLM(
        7, num_layers, 4, 1, placement=placement, **options
    )
    model.compile(keras.optimizers.SGD(rate), MaskedCrossentropy())
    return model


def ours(found):
    # NumPy 2 warns of Keras's own variables
    return [warning for warning in found if warning.category is UserWarning]


def schedulers(model):
    return [keras.callbacks.LearningRateScheduler(lambda epoch: 0.01)]


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_it_warns(monkeypatch, norm):
    """With the width, which it reads off the first weight of a norm."""
    monkeypatch.setattr(keras.Model, "fit", fit)
    model = build(norm=norm)
    for arguments in ((), (None, 1, 0, [keras.callbacks.Callback()])):
        with pytest.warns(UserWarning, match=WORDS) as found:
            model.fit(IDS, IDS, *arguments)
        (warning,) = ours(found)
        assert warning.filename == __file__  # it points at the call of fit


def test_it_warns_with_loss_scaling_and_for_heads_and_encoder_decoders(monkeypatch):
    monkeypatch.setattr(keras.Model, "fit", fit)
    sizes = {"num_layers": 7, "hidden_dim": 4, "num_heads": 1, "placement": "post"}
    encoder = kseq.models.TransformerEncoder(7, **sizes)
    for model in (encoder.classifier(2), kseq.models.TransformerSeq2Seq(7, 7, **sizes)):
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
        model.compile(scaled, "mse")
        with pytest.warns(UserWarning, match=WORDS):
            model.fit()
    # 4 blocks before a decoder of 4 are a depth of 4
    shallow = kseq.models.TransformerSeq2Seq(7, 7, **{**sizes, "num_layers": 4})
    shallow.compile("sgd", "mse")
    shallow.fit()


@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 6},
        {"placement": "pre"},
        {"placement": "sandwich"},
        {"placement": "deepnorm"},
        {"rate": InverseSqrt(4, warmup_steps=4)},
        {"callbacks": True},
    ],
    ids=["6 layers", "pre", "sandwich", "deepnorm", "schedule", "callback"],
)
def test_it_does_not_warn(monkeypatch, options):
    """A warning would be an error."""
    monkeypatch.setattr(keras.Model, "fit", fit)
    callbacks = schedulers if options.pop("callbacks", False) else lambda model: None
    model = build(**options)
    model.fit(IDS, IDS, callbacks=callbacks(model))
    model.fit(IDS, IDS, None, 1, 0, callbacks(model))


@pytest.mark.slow
def test_a_real_fit_warns_once():
    model = build()
    with pytest.warns(UserWarning, match=WORDS) as found:
        model.fit(IDS, IDS, epochs=2, verbose=0)
    assert len(ours(found)) == 1
    model.fit(IDS, IDS, verbose=0, callbacks=schedulers(model))


def test_a_model_that_is_not_compiled_is_keras_own_error():
    model = kseq.models.TransformerLM(7, 7, 4, 1, placement="post")
    with pytest.raises(ValueError, match=r"compile\(\)"):
        model.fit(IDS, IDS)
