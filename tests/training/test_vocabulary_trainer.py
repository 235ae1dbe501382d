"""Training without logits equals training with them."""

import keras
import numpy as np
import pytest
from helpers import assert_close

import kseq
from kseq.training import MaskedCrossentropy, TokenCrossentropy, VocabularyTrainer

B, T, D, N = 4, 5, 3, 11
OPTIONS = dict(label_smoothing=0.1, z_loss=0.01)


def data():
    """Padding by the mask, by the pad id, and by weights of tokens."""
    rng = np.random.default_rng(0)
    ids, targets = (rng.integers(1, N, (B, T)).astype("int32") for _ in range(2))
    ids[0, 3:] = ids[1, 1:] = targets[0, 2:] = 0
    return ids, targets, rng.random((B, T)).astype("float32")


def make_parts(kind):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((None,), dtype="int32")
    table = kseq.layers.Embedding(N, D, mask_zero=True, name="table")
    layer = kseq.layers.SimpleRNN(
        D, return_sequences=True, kernel_regularizer=keras.regularizers.L2(0.1)
    )
    trunk = keras.Model(inputs, layer(table(inputs)))
    if kind == "tied":
        return trunk, table, table(trunk(inputs), reverse=True)
    head = keras.layers.Dense(N, use_bias=kind == "dense")
    return trunk, head, head(trunk(inputs))


def make_plain(kind):
    trunk, _, logits = make_parts(kind)
    model = keras.Model(trunk.inputs, logits)
    model.compile(
        keras.optimizers.SGD(0.5), MaskedCrossentropy(**OPTIONS),
        weighted_metrics=[TokenCrossentropy()], jit_compile=True,
    )  # fmt: skip
    return model


def make_trainer(kind):
    trunk, head, _ = make_parts(kind)
    trainer = VocabularyTrainer(trunk, head, chunk_size=3, **OPTIONS)
    trainer.compile(keras.optimizers.SGD(0.5), jit_compile=True)
    return trainer


def fit(model):
    ids, targets, weights = data()
    return model.fit(
        ids, targets, sample_weight=weights, batch_size=2, epochs=2, shuffle=False,
        verbose=0, validation_data=(ids, targets, weights),
    ).history  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        "tied",
        pytest.param("dense", marks=pytest.mark.slow),
        pytest.param("no bias", marks=pytest.mark.slow),
    ],
)
def test_equals_the_model_with_logits(kind, tmp_path):
    """Losses, and what four steps of SGD, which show gradients, make of the weights."""
    plain, trainer = make_plain(kind), make_trainer(kind)
    want, got = fit(plain), fit(trainer)
    for name in ("loss", "val_loss", "val_token_crossentropy"):
        assert_close(name, got[name], want[name])
    assert_close("perplexity", got["perplexity"], np.exp(got["token_crossentropy"]))
    assert len(trainer.weights) == len(plain.weights)
    assert_close("weights", trainer.get_weights(), plain.get_weights(), gradient=True)

    trainer.save(tmp_path / "trainer.keras")
    loaded = keras.models.load_model(tmp_path / "trainer.keras")
    ids, targets, _ = data()
    again = loaded.evaluate(ids, targets, verbose=0, return_dict=True)
    assert again == trainer.evaluate(ids, targets, verbose=0, return_dict=True)
    assert len(loaded.weights) == len(plain.weights)
    tied = loaded.trunk.get_layer("table") is loaded.head
    assert tied == (kind == "tied")
    for name in ("pad_id", "label_smoothing", "z_loss", "chunk_size"):
        assert loaded.get_config()[name] == trainer.get_config()[name]


def test_the_metric_of_an_epoch_counts_the_tokens_of_all_batches():
    """At rate 0, one batch of 4 rows and two of 2 agree."""
    trainer = make_trainer("tied")
    ids, targets, _ = data()
    one, two = (
        trainer.evaluate(ids, targets, batch_size=size, verbose=0, return_dict=True)
        for size in (4, 2)
    )
    assert_close("crossentropy", one["token_crossentropy"], two["token_crossentropy"])
    assert_close("perplexity", one["perplexity"], two["perplexity"])


def test_half_precision_is_close_to_the_model_with_logits():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        plain, trainer = make_plain("dense"), make_trainer("dense")
        ids, targets, _ = data()
        want, got = (
            model.evaluate(ids, targets, verbose=0, return_dict=True)["loss"]
            for model in (plain, trainer)
        )
    finally:
        keras.config.set_dtype_policy("float32")
    assert_close("loss", got, want, "bfloat16")


def built_dense(**options):
    head = keras.layers.Dense(N, **options)
    head.build((None, None, D))
    return head


@pytest.mark.parametrize(
    ("head", "error", "words"),
    [
        (lambda: keras.layers.Identity(), TypeError, "must be a .*Dense.*'Identity'"),
        (
            lambda: keras.layers.ReversibleEmbedding(N, D),
            TypeError,
            "`head` must be a .*'ReversibleEmbedding'",
        ),
        (lambda: keras.layers.Dense(N), ValueError, "`head` must be built"),
        (lambda: kseq.layers.Embedding(N, D), ValueError, "`head` must be built"),
        (lambda: built_dense(activation="relu"), ValueError, "must have no activation"),
    ],
)
def test_heads_are_checked(head, error, words):
    with pytest.raises(error, match=words):
        VocabularyTrainer(keras.layers.Identity(), head())


def test_a_trunk_that_is_none():
    with pytest.raises(TypeError, match=r"`trunk` must be a Keras model.*trunk='str'"):
        VocabularyTrainer("x", built_dense())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"label_smoothing": 1.0}, "`label_smoothing` must be a probability"),
        ({"z_loss": -1}, "`z_loss` must be a number of at least 0"),
        ({"chunk_size": 0}, "`chunk_size` must be a positive integer"),
    ],
)
def test_arguments_are_checked(options, words):
    with pytest.raises(ValueError, match=words):
        VocabularyTrainer(keras.layers.Identity(), built_dense(), **options)


@pytest.mark.parametrize("name", ["loss", "metrics", "weighted_metrics"])
def test_what_needs_logits_is_refused(name):
    trainer = VocabularyTrainer(keras.layers.Identity(), built_dense())
    with pytest.raises(ValueError, match=rf"Only logits have .*arguments=\['{name}'\]"):
        trainer.compile("sgd", **{name: ["mse"]})
