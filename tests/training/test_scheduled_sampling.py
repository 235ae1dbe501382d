"""Both forms of scheduled sampling: the tokens that were mixed in, trained on apart."""

import keras
import numpy as np
import pytest
from helpers import assert_close, to_numpy
from models.small_models import language_model, seq2seq, spread

import kseq
from kseq.ops.categorical import draw, without_padding
from kseq.training import (
    InverseSigmoid,
    MaskedCrossentropy,
    ScheduledSampling,
    TwoPassSampling,
)

SOURCES = np.array([[4, 9, 8, 7, 2], [7, 3, 2, 0, 0]])
TARGETS = np.array([[1, 5, 6, 7, 8, 9], [1, 3, 4, 10, 0, 0]])
LABELS = np.array([[5, 6, 7, 8, 9, 2], [3, 4, 10, 2, 0, 0]])
REAL = TARGETS != 0


def recurrent_seq2seq():
    return spread(kseq.models.RecurrentSeq2Seq(11, 13, 6, 8, num_layers=2))


def language():
    return language_model(tie_embeddings=False)


KINDS = {
    "recurrent": (ScheduledSampling, recurrent_seq2seq),
    "Transformer": (TwoPassSampling, lambda: seq2seq(tie_embeddings=False)),
    "language model": (TwoPassSampling, language),
}
kinds = pytest.mark.parametrize(
    "kind",
    [
        "recurrent",
        "Transformer",
        pytest.param("language model", marks=pytest.mark.slow),
    ],
)


def inputs(kind, target=TARGETS):
    if kind == "language model":
        return target
    return {"source_ids": SOURCES, "target_ids": target}


def mixed(kind, model, gold):
    """The inputs that a trainer of seed 3 makes at its first update."""
    generator = keras.random.SeedGenerator(3)
    seeds = generator.next(), generator.next()
    trainer = KINDS[kind][0](model, gold, seed=3)
    is_gold = to_numpy(trainer.is_gold(TARGETS, gold, seeds[0]))
    found = TARGETS.copy()
    rows, places = np.arange(2)[:, None], np.arange(TARGETS.shape[1])
    steps = range(1, TARGETS.shape[1])
    if kind == "recurrent":
        # a draw depends on those before it
        for t in steps:
            logits = without_padding(model(inputs(kind, found)))
            drawn = to_numpy(draw(logits, seeds[1], rows, places))
            found[:, t] = np.where(is_gold[:, t], TARGETS[:, t], drawn[:, t - 1])
            found[~REAL] = 0
        return found
    logits = without_padding(model(inputs(kind)))
    drawn = to_numpy(draw(logits, seeds[1], rows, places))
    for t in steps:
        found[:, t] = np.where(is_gold[:, t], TARGETS[:, t], drawn[:, t - 1])
    found[~REAL] = 0
    return found


@pytest.mark.parametrize("gold", [pytest.param(1.0, marks=pytest.mark.slow), 0.0])
@kinds
def test_logits_are_those_of_the_mixed_tokens(kind, gold):
    trainer_class, make = KINDS[kind]
    model = make()
    tokens = mixed(kind, model, gold)
    assert (tokens == TARGETS).all() == (gold == 1.0)
    want = to_numpy(model(inputs(kind, tokens)))
    trainer = trainer_class(model, gold, seed=3)
    got = to_numpy(trainer(inputs(kind), training=True))
    np.testing.assert_allclose(got[REAL], want[REAL], atol=1e-5)


@kinds
def test_an_update_is_that_of_the_mixed_tokens(kind):
    """Every weight after a step of gradient descent; the loop is compiled."""
    trainer_class, make = KINDS[kind]
    tokens = mixed(kind, make(), 0.5)
    after = []
    for train, tokens_in in (("trainer", TARGETS), ("model", tokens)):
        model = make()
        trained = trainer_class(model, 0.5, seed=3) if train == "trainer" else model
        trained.compile(
            keras.optimizers.SGD(1.0),
            loss=MaskedCrossentropy(),
            jit_compile=train == "trainer" and kind == "recurrent",
        )
        trained.train_on_batch(inputs(kind, tokens_in), LABELS)
        after.append([to_numpy(w) for w in model.trainable_variables])
    assert_close("weights", *after, gradient=True)


@kinds
def test_evaluation_is_that_of_the_model(kind):
    trainer_class, make = KINDS[kind]
    model = make()
    trainer = trainer_class(model, 0.0)
    np.testing.assert_array_equal(
        to_numpy(trainer(inputs(kind))), to_numpy(model(inputs(kind)))
    )


def test_the_share_of_true_tokens():
    trainer = TwoPassSampling(language(), 0.7, seed=1)
    kept = trainer.is_gold(np.ones((200, 101), int), 0.7, trainer.seed_generator.next())
    kept = to_numpy(kept)
    assert kept[:, 0].all()
    assert abs(kept[:, 1:].mean() - 0.7) < 0.01


@pytest.mark.parametrize("kind", ["recurrent", "language model"])
def test_fit_follows_the_schedule_and_files_keep_it(kind, tmp_path):
    trainer_class, make = KINDS[kind]
    trainer = trainer_class(make(), InverseSigmoid(2.0), seed=1)
    trainer.compile("adam", loss=MaskedCrossentropy())
    x = inputs(kind)
    losses = trainer.fit(x, LABELS, batch_size=1, epochs=3, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    assert int(trainer.updates) == 6
    trainer.evaluate(x, LABELS, verbose=0)
    assert int(trainer.updates) == 6
    trainer.save(tmp_path / "trainer.keras")
    loaded = keras.saving.load_model(tmp_path / "trainer.keras")
    assert loaded.gold.k == 2.0
    assert int(loaded.updates) == 6
    np.testing.assert_allclose(to_numpy(loaded(x)), to_numpy(trainer(x)), atol=1e-6)


@pytest.mark.parametrize(
    ("i", "probability"), [(0, 0.999001), (5000, 0.8707667550), (10_000, 0.0434282885)]
)
def test_inverse_sigmoid(i, probability):
    assert float(InverseSigmoid(1000)(i)) == pytest.approx(probability, rel=1e-5)
    assert float(InverseSigmoid(1.0)(10_000)) == 0  # does not overflow


@pytest.mark.parametrize("gold", [-0.1, 1.1])
def test_bad_probabilities_are_named(gold):
    with pytest.raises(ValueError, match=r"`gold` must be a probability in \[0, 1\]"):
        TwoPassSampling(language(), gold)
    with pytest.raises(ValueError, match="`k` must be at least 1"):
        InverseSigmoid(0.5)
