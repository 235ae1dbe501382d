"""The encoder-decoder: a float64 forward, steps, greedy decoding, padding."""

import keras
import numpy as np
import pytest
from helpers import assert_close, gradients, to_numpy
from keras import ops
from models.small_models import (
    PAIR,
    ROWS,
    SOURCES,
    D,
    H,
    L,
    N,
    real_close,
    seq2seq,
    stack_parameters,
)
from reference import transformer
from reference.positions import plain

import kseq
from kseq.layers import PositionEmbedding
from kseq.models.deep_norm import encoder_and_decoder

REAL = ROWS != 0


@pytest.mark.parametrize(
    "options",
    [
        {"placement": "post"},
        {"norm": "rms", "tie_embeddings": False, "activation": "geglu"},
        {"num_key_value_heads": 1},
        {"positions": "rotary", "placement": "sandwich", "use_bias": False},
        {"source_vocabulary_size": N, "share_embeddings": True, "positions": "none"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_logits(options):
    """Against the formulas, padding on either side of sources and targets."""
    model = seq2seq(**options)
    positions = options.get("positions", "sinusoidal")
    want = transformer.encoder_decoder(
        SOURCES,
        ROWS,
        stack_parameters(
            model.source_embedding, model.encoder_blocks, model.encoder_norm
        ),
        stack_parameters(
            model.target_embedding, model.decoder_blocks, model.decoder_norm, model.head
        ),
        sinusoidal=positions == "sinusoidal",
        theta=plain(D // H, 1e4) if positions == "rotary" else None,
        placement=options.get("placement", "pre"),
        activation=options.get("activation", "relu"),
    )
    real_close(model(PAIR), want, REAL)


def test_deepnorm_scales_both_residual_streams():
    model = seq2seq(placement="deepnorm")
    encoder, decoder = encoder_and_decoder(L, L)
    for blocks, deep_norm in (
        (model.encoder_blocks, encoder),
        (model.decoder_blocks, decoder),
    ):
        for block in blocks:
            assert block.get_config()["residual_scale"] == deep_norm.alpha
            assert block.get_config()["placement"] == "post"


POSITIONS = {
    **{name: lambda name=name: name for name in ("rotary", "alibi", "t5", "none")},
    "sinusoidal": lambda: "sinusoidal",
    "learned": lambda: PositionEmbedding(8),
}


@pytest.mark.parametrize("positions", POSITIONS)
def test_stepping_equals_the_teacher_forced_run(positions):
    """Over memories with padding, rows that begin with padding or have ended."""
    model = seq2seq(positions=POSITIONS[positions]())
    whole = to_numpy(model(PAIR))
    state = model.empty_state(ops.convert_to_tensor(SOURCES, "int32"), 6)
    for t in range(ROWS.shape[1]):
        logits, state = model.step(ops.convert_to_tensor(ROWS[:, t], "int32"), state)
        real_close(logits, whole[:, t], REAL[:, t], 1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_stands_on_either_side(positions):
    model = seq2seq(positions=POSITIONS[positions]())
    source, target = SOURCES[:1, :4], ROWS[:1, :3]
    want = to_numpy(model({"source_ids": source, "target_ids": target}))
    left = {
        "source_ids": np.pad(source, ((0, 0), (2, 0))),
        "target_ids": np.pad(target, ((0, 0), (1, 0))),
    }
    assert_close("logits", to_numpy(model(left))[:, 1:], want)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"positions": "rotary", "placement": "post"}],
    ids=["pre-sinusoidal", "post-rotary"],
)
def test_generate(options):
    """Each id is the most probable after those before it; alone as in a batch."""
    # tied weights repeat what was said last, and biases always say the same
    model = seq2seq(tie_embeddings=False, **options)
    for weight in model.weights:
        if len(weight.shape) == 1 or "bias" in weight.path:
            weight.assign(ops.full(weight.shape, float("gamma" in weight.path)))
        else:
            weight.assign(2 * to_numpy(weight))
    ids = model.generate(SOURCES, max_length=6).token_ids
    assert ids.dtype == "int32"
    starts = np.ones((len(ids), 1), int)
    shifted = np.concatenate([starts, ids[:, :-1]], axis=1)
    inputs = {"source_ids": SOURCES, "target_ids": np.where(ids, shifted, 0)}
    best = 1 + to_numpy(model(inputs))[..., 1:].argmax(-1)
    np.testing.assert_array_equal(np.where(ids, best, 0), ids)
    for row in ids:
        ends = np.flatnonzero(row == model.end_id)
        assert not row[ends[0] + 1 :].any() if len(ends) else row.all()
    assert len({tuple(row) for row in ids}) > 1  # they read their sources
    for row, source in enumerate(SOURCES[:2]):  # whole, and padded on the right
        alone = model.generate([source[source != 0]], max_length=6).token_ids[0]
        np.testing.assert_array_equal(ids[row, : len(alone)], alone)
        assert not ids[row, len(alone) :].any()
    np.testing.assert_array_equal(
        model.generate(SOURCES, max_length=6, batch_size=2).token_ids, ids
    )


def test_padding_may_hold_any_embedding():
    """With row 0 of both tables NaN: logits, loss and gradients stay."""
    model = seq2seq(tie_embeddings=False)
    targets = np.where(REAL, 4, 0)
    loss = kseq.training.MaskedCrossentropy()
    found = []
    for value in (0, np.nan):
        for embedding in (model.source_embedding, model.target_embedding):
            table = to_numpy(embedding.embeddings).copy()
            table[0] = value
            embedding.embeddings.assign(table)
        logits, _, d_weights = gradients(
            lambda: model(PAIR),
            [],
            model.trainable_variables,
            loss=lambda y: loss(targets, y),
        )
        found.append((logits[REAL], d_weights))
    np.testing.assert_array_equal(found[1][0], found[0][0])
    for variable, got, want in zip(
        model.trainable_variables, found[1][1], found[0][1], strict=True
    ):
        np.testing.assert_array_equal(got, want, variable.path)
        assert np.isfinite(want).all(), variable.path
        assert want.any(), variable.path


def test_no_logit_depends_on_a_later_target():
    model = seq2seq(tie_embeddings=False)
    pair = {name: ids[:1] for name, ids in PAIR.items()}
    for t in (0, 2):
        _, _, (d_source, d_target) = gradients(
            lambda t=t: model(pair)[:, t],
            [],
            [model.source_embedding.embeddings, model.target_embedding.embeddings],
        )
        assert not d_target[ROWS[0, t + 1 :]].any()
        assert d_target[ROWS[0, : t + 1]].any(axis=1).all()
        assert d_source[SOURCES[0]].any(axis=1).all()


def test_logits_carry_the_mask_of_the_target():
    counted = kseq.training.MaskedCrossentropy(pad_id=None)
    weights = counted.token_weights(ROWS, seq2seq()(PAIR))
    np.testing.assert_array_equal(to_numpy(weights), REAL)


def test_symbolic_shapes_are_the_real_ones():
    model = seq2seq()
    assert model.output.shape == (None, None, N)
    one = {"source_ids": SOURCES[:1, :1], "target_ids": ROWS[:1, :1]}
    for inputs in (PAIR, one):
        assert model(inputs).shape == (*inputs["target_ids"].shape, N)


def test_shared_embeddings_are_one_table():
    model = seq2seq(source_vocabulary_size=N, share_embeddings=True)
    assert model.source_embedding is model.target_embedding is model.head
    names = [w.path for w in model.weights if w.path.endswith("embeddings")]
    assert names == ["embedding/embeddings"]


BAD = [
    ({"source_vocabulary_size": 0}, "`source_vocabulary_size` must be a positive"),
    ({"target_vocabulary_size": 0}, "`target_vocabulary_size` must be a positive"),
    ({"num_layers": 0}, "`num_layers` must be a positive integer"),
    ({"hidden_dim": 2.5}, "`hidden_dim` must be a positive integer"),
    ({"num_heads": 3}, "`num_heads` must divide `hidden_dim`"),
    ({"positions": "sine"}, "`positions` must be one of"),
    ({"placement": "last"}, "`placement` must be one of"),
    ({"norm": "group"}, "`norm` must be one of"),
    ({"activation": "tanh"}, "`activation` must be one of"),
    ({"dropout": -0.1}, "`dropout` must be a probability"),
    ({"share_embeddings": True}, "`share_embeddings` needs one vocabulary.*11.*13"),
    ({"end_id": 1}, "two different target ids.*end_id=1"),
    ({"start_id": 13}, "two different target ids.*start_id=13"),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_arguments_are_named(change, words):
    sizes = {
        "source_vocabulary_size": 11,
        "target_vocabulary_size": N,
        "num_layers": L,
        "hidden_dim": D,
        "num_heads": H,
    }
    with pytest.raises(ValueError, match=words):
        kseq.models.TransformerSeq2Seq(**{**sizes, **change})


def test_bad_sources_and_lengths_are_named():
    model = seq2seq(positions=PositionEmbedding(8))
    with pytest.raises(ValueError, match=r"must lie in .* largest=11"):
        model.generate(np.full((1, 2), 11))
    with pytest.raises(ValueError, match=r"fewer learned positions.*max_length=16"):
        model.generate(SOURCES)


ALL = {
    "intermediate_dim": 11,
    "positions": "alibi",
    "activation": "silu",
    "norm": "rms",
    "placement": "deepnorm",
    "dropout": 0.1,
    "use_bias": False,
    "tie_embeddings": False,
    "share_embeddings": True,
    "start_id": 3,
    "end_id": 4,
    "remat": True,
    "name": "other",
    "trainable": False,
    "dtype": "mixed_bfloat16",
}


def test_config_round_trip():
    model = kseq.models.TransformerSeq2Seq(N, N, L, D, H, **ALL)
    config = model.get_config()
    for name, value in ALL.items():
        if name != "dtype":
            assert config[name] == value
    again = kseq.models.TransformerSeq2Seq.from_config(config)
    assert again.get_config() == config
    assert [w.path for w in again.weights] == [w.path for w in model.weights]


def test_a_position_layer_is_cloned_for_sources_and_targets():
    model = seq2seq(positions=PositionEmbedding(8))
    tables = [w.path for w in model.weights if "positions" in w.path]
    assert sorted(tables) == [
        "source_positions/embeddings",
        "target_positions/embeddings",
    ]
    again = kseq.models.TransformerSeq2Seq.from_config(model.get_config())
    again.set_weights(model.get_weights())
    assert_close("logits", again(PAIR), model(PAIR))
    assert isinstance(again.positions, keras.layers.Layer)
