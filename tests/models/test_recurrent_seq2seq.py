"""The recurrent encoder-decoder as a user meets it: fit, generate, save."""

import gc
import weakref

import keras
import numpy as np
import pytest
from keras import ops

import kseq

SOURCES, TARGETS = 11, 13
KINDS = [
    {"cell": "gru", "attention": "bahdanau"},
    {"cell": "lstm", "attention": "luong", "num_layers": 2},
    {"cell": "rnn", "attention": None, "bidirectional": False},
]
IDS = ["gru bahdanau", "lstm luong 2 layers", "rnn fixed vector"]


def build(seed=0, **options):
    keras.utils.set_random_seed(seed)
    options = {"embedding_dim": 6, "units": 8, **options}
    model = kseq.models.RecurrentSeq2Seq(SOURCES, TARGETS, **options)
    # large weights, so that what the model says depends on what it reads
    rng = np.random.default_rng(seed)
    model.set_weights(
        [rng.normal(scale=0.9, size=w.shape) for w in model.get_weights()]
    )
    return model


def pairs(seed=0):
    """Three rows of different lengths, padded on the right with 0."""
    rng = np.random.default_rng(seed)
    source = rng.integers(3, SOURCES, size=(3, 7))
    target = rng.integers(3, TARGETS, size=(3, 5))
    target[:, 0] = 1
    for row, (s, t) in enumerate([(7, 5), (4, 3), (1, 2)]):
        source[row, s:], target[row, t:] = 0, 0
    return source, target


def inputs(source, target):
    return {"source_ids": source, "target_ids": target}


@pytest.fixture(scope="module", params=KINDS, ids=IDS)
def model(request):
    return build(**request.param)


def test_padding_changes_no_real_logit(model):
    source, target = pairs()
    whole = ops.convert_to_numpy(model(inputs(source, target)))
    for row, (s, t) in enumerate([(7, 5), (4, 3), (1, 2)]):
        alone = model(inputs(source[row : row + 1, :s], target[row : row + 1, :t]))
        np.testing.assert_allclose(
            whole[row, :t], ops.convert_to_numpy(alone)[0], atol=2e-5
        )


def test_left_padding_of_both_sides_is_padding_too(model):
    source, target = pairs()
    left = inputs(
        np.concatenate([np.zeros((3, 2), int), source], axis=1),
        np.concatenate([np.zeros((3, 1), int), target], axis=1),
    )
    want = ops.convert_to_numpy(model(inputs(source, target)))
    got = ops.convert_to_numpy(model(left))[:, 1:]
    np.testing.assert_allclose(got[target != 0], want[target != 0], atol=2e-5)


def test_logits_depend_on_no_later_target(model):
    source, target = pairs()
    changed = target.copy()
    changed[0, 3:] = [4, 3]
    before, after = (
        ops.convert_to_numpy(model(inputs(source, t))) for t in (target, changed)
    )
    np.testing.assert_array_equal(before[0, :3], after[0, :3])
    assert (before[0, 3] != after[0, 3]).any()


def test_stepping_equals_the_teacher_forced_run(model):
    source, target = pairs()
    want = ops.convert_to_numpy(model(inputs(source, target)))
    state = model.empty_state(ops.convert_to_tensor(source, "int32"), 6)
    for t in range(target.shape[1]):
        logits, state = model.step(ops.convert_to_tensor(target[:, t], "int32"), state)
        real = target[:, t] != 0
        np.testing.assert_allclose(
            ops.convert_to_numpy(logits)[real], want[real, t], atol=1e-5
        )


def test_generate_is_the_argmax_of_its_own_past(model):
    """Each id is the most probable one after those before it, until the end."""
    source, _ = pairs()
    ids = model.generate(source, max_length=6).token_ids
    assert ids.dtype == "int32"
    shifted = np.concatenate([np.ones((3, 1), int), ids[:, :-1]], axis=1)
    logits = ops.convert_to_numpy(model(inputs(source, np.where(ids, shifted, 0))))
    best = 1 + logits[..., 1:].argmax(-1)
    np.testing.assert_array_equal(np.where(ids, best, 0), ids)
    for row in ids:
        ends = np.flatnonzero(row == model.end_id)
        if len(ends):
            assert not row[ends[0] + 1 :].any()
        else:
            assert row.all()


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["local", "monotonic", "location", "coverage"])
def test_attention_that_depends_on_places_or_on_earlier_steps(attention):
    """The weights of a step are the same teacher-forced, stepped and generating."""
    model = build(attention=attention)
    test_padding_changes_no_real_logit(model)
    test_stepping_equals_the_teacher_forced_run(model)
    test_generate_is_the_argmax_of_its_own_past(model)


def test_a_batch_gives_what_each_row_gives_alone(model):
    source, _ = pairs()
    together = model.generate(source, max_length=6).token_ids
    for row, length in enumerate([7, 4, 1]):
        alone = model.generate(source[row : row + 1, :length], max_length=6).token_ids
        width = alone.shape[1]
        np.testing.assert_array_equal(together[row, :width], alone[0])
        assert not together[row, width:].any()
    # chunks of two rows, the last one filled up
    np.testing.assert_array_equal(
        model.generate(source, max_length=6, batch_size=2).token_ids, together
    )


def test_saved_model_loads_with_equal_logits_and_ids(model, tmp_path):
    source, target = pairs()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(
        ops.convert_to_numpy(loaded(inputs(source, target))),
        ops.convert_to_numpy(model(inputs(source, target))),
    )
    np.testing.assert_array_equal(
        loaded.generate(source, max_length=6).token_ids,
        model.generate(source, max_length=6).token_ids,
    )


def test_no_encoder_layer_takes_the_id_of_another(monkeypatch):
    """While Keras loads a model, it would take both for the same layer."""
    bidirectional, seen = keras.layers.Bidirectional, []

    def make(layer, **options):
        gc.collect()
        seen.append(weakref.ref(layer))
        assert all(reference() is not None for reference in seen)
        return bidirectional(layer, **options)

    monkeypatch.setattr(keras.layers, "Bidirectional", make)
    build(num_layers=3)
    assert len(seen) == 3


def test_logits_carry_the_mask_of_the_target():
    """A metric that reads the Keras mask counts the real tokens only."""
    source, target = pairs()
    counted = kseq.training.MaskedCrossentropy(pad_id=None)
    weights = counted.token_weights(target, build()(inputs(source, target)))
    np.testing.assert_array_equal(ops.convert_to_numpy(weights), target != 0)


def test_fit_learns_to_copy_under_xla_and_traces_once():
    """Copying a two-letter word: the loss falls from ln 13 to nearly nothing."""
    rng = np.random.default_rng(0)
    words = rng.integers(3, 7, size=(256, 2))
    source = np.concatenate([words, np.full((256, 1), 2)], axis=1)
    target = np.concatenate([np.ones((256, 1), int), words], axis=1)
    keras.utils.set_random_seed(0)
    model = kseq.models.RecurrentSeq2Seq(
        SOURCES, TARGETS, embedding_dim=8, units=16, dropout=0.1
    )
    traces = []
    decode = model.decoder_layers[0].call
    model.decoder_layers[0].call = lambda *a, **k: traces.append(1) or decode(*a, **k)
    model.compile(
        keras.optimizers.Adam(0.02),
        loss=kseq.training.MaskedCrossentropy(),
        metrics=[kseq.training.TokenAccuracy()],
        jit_compile=True,
    )
    history = model.fit(
        inputs(source, target), source, batch_size=64, epochs=20, verbose=0
    )
    assert history.history["loss"][0] > 1
    assert history.history["token_accuracy"][-1] > 0.95
    assert len(traces) <= 3  # the symbolic build, and the compiled step
    ids = model.generate(source[:32], max_length=4).token_ids
    assert (ids[:, :3] == source[:32]).all(axis=1).mean() > 0.9


def test_all_weights_get_a_gradient():
    source, target = pairs()
    for options in KINDS:
        model = build(**options)
        model.compile(
            keras.optimizers.SGD(1.0), loss=kseq.training.MaskedCrossentropy()
        )
        before = model.get_weights()
        labels = np.where(target, 3, 0)
        model.train_on_batch(inputs(source, target), labels)
        for weight, old in zip(model.weights, before):
            new = ops.convert_to_numpy(weight)
            assert np.isfinite(new).all(), weight.path
            assert (new != old).any(), weight.path


def test_mixed_precision_stays_close():
    source, target = pairs()
    exact = build()
    half = build(dtype="mixed_bfloat16")
    want = ops.convert_to_numpy(exact(inputs(source, target)))
    got = ops.convert_to_numpy(ops.cast(half(inputs(source, target)), "float32"))
    # bfloat16 keeps 8 bits, and the logits are sums of 16 products of up to 3
    np.testing.assert_allclose(got, want, atol=0.25)
    assert half.output_dense.compute_dtype == "bfloat16"
    half.compile("sgd", loss=kseq.training.MaskedCrossentropy(), jit_compile=True)
    labels = np.where(target, 3, 0)
    loss = half.train_on_batch(inputs(source, target), labels)
    exact_loss = kseq.training.MaskedCrossentropy()(labels, want)
    np.testing.assert_allclose(float(loss), float(exact_loss), atol=0.25)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cell": "lstn"}, r"`cell` must be one of 'rnn', 'gru', 'lstm'\. .*'lstn'"),
        ({"attention": "dot"}, "`attention` must be one of 'bahdanau', .*, None"),
        ({"units": 7}, r"`units` must be even .* units=7\. Try units=8"),
        ({"units": 0}, "`units` must be a positive integer"),
        ({"embedding_dim": 2.5}, "`embedding_dim` must be a positive integer"),
        ({"dropout": 1.0}, "`dropout` must be a probability"),
        ({"end_id": 1}, "must be two different target ids.*end_id=1"),
        ({"start_id": 13}, "must be two different target ids.*start_id=13"),
    ],
)
def test_bad_arguments_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        kseq.models.RecurrentSeq2Seq(
            **{
                "source_vocabulary_size": SOURCES,
                "target_vocabulary_size": TARGETS,
                "embedding_dim": 6,
                "units": 8,
                **change,
            }
        )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (np.zeros((2,), int), r"must be rows of integers.*shape=\(\)"),
        (np.zeros((2, 3)), "must be rows of integers.*dtype='float64'"),
        ([[5], []], "must be rows of integers, at least one.*row=1"),
        (np.full((1, 2), SOURCES), "must lie in .* largest=11"),
        (np.full((1, 2), -1), "must lie in .* smallest=-1"),
    ],
    ids=["rank", "dtype", "empty", "too large", "negative"],
)
def test_bad_sources_are_named(source, words):
    with pytest.raises(ValueError, match=words):
        build().generate(source)


def test_a_misspelt_argument_is_refused():
    with pytest.raises(TypeError, match="dropuot"):
        build(dropuot=0.1)


def test_sizes_of_numpy_are_sizes():
    model = kseq.models.RecurrentSeq2Seq(np.int64(11), 13, 6, 8)
    assert model.get_config()["source_vocabulary_size"] == 11
