"""The language model: a float64 forward, steps, packing, padding, causality."""

import keras
import numpy as np
import pytest
from helpers import assert_close, gradients, to_numpy
from keras import ops
from models.small_models import (
    ROWS,
    D,
    H,
    L,
    N,
    language_model,
    real_close,
    spread,
    stack_parameters,
)
from reference import positions as reference_positions
from reference import transformer

import kseq
from kseq.backend import compiled
from kseq.layers import PositionEmbedding, RotaryEmbedding
from kseq.ops import YaRNScaling

REAL = ROWS != 0
YARN = {"scaling": YaRNScaling(2, 64)}
POSITIONS = {
    "rotary": lambda: "rotary",
    "alibi": lambda: "alibi",
    "t5": lambda: "t5",
    "sinusoidal": lambda: "sinusoidal",
    "none": lambda: "none",
    "learned": lambda: PositionEmbedding(7),
    "yarn": lambda: RotaryEmbedding(**YARN),
}


def parameters(model):
    return stack_parameters(
        model.token_embedding, model.blocks, model.final_norm, model.head
    )


def reference_options(model, name, length):
    """What the reference is told of the positions."""
    theta = reference_positions.plain(D // H, 1e4)
    distance = np.arange(length)[None] - np.arange(length)[:, None]  # key - query
    if name == "alibi":
        slopes = np.array(reference_positions.slopes(H))
        bias = slopes[:, None, None] * distance
    elif name == "t5":
        (first, second) = (to_numpy(b.mixer.bias.embeddings) for b in model.blocks)
        assert (first != second).all()  # each layer has its own
        return {}
    return {
        "rotary": {"theta": theta},
        "sinusoidal": {"sinusoidal": True},
        "alibi": {"bias": bias[None]} if name == "alibi" else None,
        "none": {},
    }[name]


@pytest.mark.parametrize(
    ("positions", "options"),
    [
        ("sinusoidal", {}),
        ("rotary", {"placement": "post", "norm": "rms", "activation": "swiglu"}),
        ("rotary", {"norm": "rms", "num_key_value_heads": 1, "use_bias": False}),
        ("sinusoidal", {"placement": "post", "tie_embeddings": False}),
        ("none", {"placement": "sandwich", "intermediate_dim": 5}),
        ("alibi", {"placement": "deepnorm", "activation": "relu"}),
        ("rotary", {"window": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value)),
)
def test_logits(positions, options):
    """Against the formulas, row by row of padding on either side."""
    model = language_model(positions=positions, **options)
    placement = options.get("placement", "pre")
    alpha = (2 * L) ** 0.25 if placement == "deepnorm" else 1
    want = transformer.language_model(
        ROWS,
        parameters(model),
        placement="post" if placement == "deepnorm" else placement,
        activation=options.get("activation", "gelu"),
        alpha=alpha,
        window=options.get("window"),
        **reference_options(model, positions, ROWS.shape[1]),
    )
    real_close(model(ROWS), want, REAL)


@pytest.mark.parametrize("shape", [(2, 0), (0, 3)], ids=str)
def test_no_rows_and_no_tokens(shape):
    for positions in ("rotary", "sinusoidal"):
        model = language_model(positions=positions)
        assert tuple(model(np.zeros(shape, "int32")).shape) == (*shape, N)


@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_stands_on_either_side(positions):
    model = language_model(positions=POSITIONS[positions]())
    row = ROWS[:1, :4]
    want = to_numpy(model(row))
    real_close(to_numpy(model(np.pad(row, ((0, 0), (2, 0)))))[:, 2:], want, row != 0)


@pytest.mark.parametrize(
    ("positions", "window"),
    [*((name, None) for name in POSITIONS), ("rotary", 2), ("alibi", 3)],
)
def test_stepping_equals_the_full_run(positions, window):
    """Also where a row begins with padding or has ended, and in a ring of slots."""
    model = language_model(positions=POSITIONS[positions](), window=window)
    whole = to_numpy(model(ROWS))
    state = model.empty_state(len(ROWS), ROWS.shape[1])
    for t in range(ROWS.shape[1]):
        logits, state = model.step(ops.convert_to_tensor(ROWS[:, t], "int32"), state)
        real_close(logits, whole[:, t], REAL[:, t], 1e-5)
    assert int(state["index"]) == ROWS.shape[1]


def test_a_compiled_step_equals_the_full_run():
    """With post-norm, grouped heads and untied logits."""
    model = language_model(
        placement="post", num_key_value_heads=1, tie_embeddings=False
    )
    whole = to_numpy(model(ROWS))
    step = compiled(model.step, model.variables)
    state = model.empty_state(len(ROWS), 9)  # longer than what is read
    for t in range(ROWS.shape[1]):
        logits, state = step(ROWS[:, t].astype("int32"), state)
        real_close(logits, whole[:, t], REAL[:, t], 1e-5)


DOCUMENTS = [[5, 6, 7], [8, 9, 10, 11], [3, 4, 2], [12, 2, 5, 6, 7]]


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "alibi"])
def test_packed_rows_are_the_documents_apart(positions):
    """Logits, the loss, and its gradient of every weight."""
    apart = language_model(positions=positions)
    together = language_model(positions=positions, packed=True)
    rows = kseq.data.pack(DOCUMENTS, 8)
    alone = kseq.data.pack(DOCUMENTS, 5)  # no two of them fit into 5
    assert len(rows.token_ids) == 2
    loss = kseq.training.MaskedCrossentropy()
    found = []
    for model, packed in ((together, rows), (apart, alone)):
        ids = packed.token_ids
        inputs = ids
        if model is together:
            inputs = {
                "token_ids": ids,
                "segment_ids": packed.segment_ids,
                "positions": packed.positions,
            }
        logits, _, d_weights = gradients(
            lambda model=model, inputs=inputs: model(inputs),
            [],
            model.trainable_variables,
            loss=lambda y, targets=packed.target_ids: loss(targets, y),
        )
        by_document = {}
        for row, segments in enumerate(packed.segment_ids):
            for segment in range(1, segments.max() + 1):
                places = segments == segment
                by_document[tuple(ids[row, places])] = logits[row, places]
        found.append((by_document, d_weights))
    assert len(found[0][0]) == len(DOCUMENTS)
    for document in DOCUMENTS:
        assert_close("logits", *(f[0][tuple(document)] for f in found))
    for variable, got, want in zip(apart.trainable_variables, *(f[1] for f in found)):
        assert_close(variable.path, got, want, gradient=True)


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_padding_may_hold_any_embedding(positions):
    """With row 0 of the table NaN: logits, loss, metric and gradients stay."""
    model = language_model(positions=positions, tie_embeddings=False)
    targets = np.where(REAL, 4, 0)
    loss = kseq.training.MaskedCrossentropy()
    found = []
    for value in (0, np.nan):
        table = to_numpy(model.token_embedding.embeddings).copy()
        table[0] = value
        model.token_embedding.embeddings.assign(table)
        logits, _, d_weights = gradients(
            lambda: model(ROWS),
            [],
            model.trainable_variables,
            loss=lambda y: loss(targets, y),
        )
        metric = kseq.training.TokenCrossentropy()
        metric.update_state(targets, logits)
        found.append(
            (logits[REAL], float(loss(targets, logits)), float(metric.result()))
        )
        assert np.isfinite(found[-1][1])
        found[-1] += (d_weights,)
    for got, want in zip(found[1][:3], found[0][:3]):
        np.testing.assert_array_equal(got, want)
    for variable, got, want in zip(
        model.trainable_variables, found[1][3], found[0][3], strict=True
    ):
        np.testing.assert_array_equal(got, want, variable.path)
        assert want.any(), variable.path


@pytest.mark.parametrize("placement", ["pre", "deepnorm"])
@pytest.mark.parametrize("positions", ["rotary", "t5"])
def test_no_logit_depends_on_a_later_token(positions, placement):
    """d logits[t] / d embedding[u] is exactly 0 for u > t."""
    model = language_model(
        positions=positions, placement=placement, tie_embeddings=False
    )
    row = ROWS[:1]  # five different ids
    for t in (0, 2):
        _, _, (d_table,) = gradients(
            lambda t=t: model(row)[:, t], [], [model.token_embedding.embeddings]
        )
        assert not d_table[row[0, t + 1 :]].any()
        assert d_table[row[0, : t + 1]].any(axis=1).all()


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_logits_carry_the_mask(positions, placement):
    """A metric that reads the Keras mask counts the real tokens only."""
    model = language_model(positions=positions, placement=placement)
    counted = kseq.training.MaskedCrossentropy(pad_id=None)
    weights = counted.token_weights(ROWS, model(ROWS))
    np.testing.assert_array_equal(to_numpy(weights), REAL)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_symbolic_shapes_and_dtypes_are_the_real_ones(dtype):
    model = language_model(dtype=dtype)
    assert model.output.shape == (None, None, N)
    for rows in (ROWS, ROWS[:1, :1]):
        y = model(rows)
        assert tuple(y.shape) == (*rows.shape, N)
        assert keras.backend.standardize_dtype(y.dtype) == model.output.dtype
    assert model.output.dtype == ("float32" if dtype == "float32" else "bfloat16")
    assert {w.dtype for w in model.trainable_variables} == {"float32"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compiled", "unknown"])
def test_compiled_equals_eager(mode):
    if mode == "unknown" and keras.backend.backend() == "jax":
        pytest.skip("JAX compiles for known shapes")
    for options in ({}, {"remat": True, "placement": "sandwich"}):
        model = language_model(**options)
        ids = ROWS.astype("int32")
        got, want = (
            gradients(model, [ids], model.trainable_variables, mode=mode)
            for mode in (mode, "eager")
        )
        real_close(got[0], want[0], REAL)
        assert_close("gradients", got[2], want[2], gradient=True)


def test_half_precision_stays_close():
    """bfloat16 keeps 8 bits; the sums, norms and softmaxes are of float32."""
    exact, half = language_model(), language_model(dtype="mixed_bfloat16")
    got, want = to_numpy(half(ROWS))[REAL], to_numpy(exact(ROWS))[REAL]
    # logits are sums of 8 products of some 1, after two blocks with errors of 2 ** -8
    assert np.abs(got - want).max() < 0.1
    assert np.abs(want).max() > 1.5


def test_remat_changes_no_logit():
    plain, again = language_model(), language_model(remat=True)
    real_close(again(ROWS), plain(ROWS), REAL, 1e-6)


def test_dropout_is_of_training_only():
    model = language_model(dropout=0.5)
    real_close(model(ROWS), language_model()(ROWS), REAL, 1e-6)
    first, second = (to_numpy(model(ROWS, training=True)) for _ in range(2))
    assert (first != second)[REAL].all(axis=-1).any()


def test_the_embeddings_of_the_stream_have_its_length():
    """Of sinusoids, whose elements are some .7: E[id] sqrt(D) has a deviation of 1."""
    for positions, want in (("sinusoidal", 64**-0.5), ("rotary", 0.02)):
        model = kseq.models.TransformerLM(500, 1, 64, 2, positions=positions)
        table = to_numpy(model.token_embedding.embeddings)
        np.testing.assert_allclose(table.std(), want, rtol=0.03)


BAD = [
    ({"vocabulary_size": 0}, "`vocabulary_size` must be a positive integer"),
    ({"num_layers": 1.5}, "`num_layers` must be a positive integer"),
    ({"hidden_dim": -8}, "`hidden_dim` must be a positive integer"),
    ({"num_heads": 0}, "`num_heads` must be a positive integer"),
    ({"num_heads": 3}, "`num_heads` must divide `hidden_dim`.*num_heads=3.*=8"),
    ({"intermediate_dim": 0}, "`intermediate_dim` must be a positive integer"),
    ({"num_heads": 8}, "`hidden_dim / num_heads` must be even.*hidden_dim=8, num_h"),
    ({"num_heads": 8, "positions": RotaryEmbedding()}, "num_heads` must be even"),
    ({"num_key_value_heads": 3}, "`num_key_value_heads` must divide `num_heads`"),
    ({"positions": "rope"}, "`positions` must be one of 'rotary', .*'none', or a"),
    ({"positions": 512}, "received: positions=512. Learned positions are"),
    ({"positions": keras.layers.Dense(3)}, "`positions` must be one of"),
    ({"activation": "gleu"}, "`activation` must be one of 'relu', 'gelu'"),
    ({"norm": "batch"}, "`norm` must be one of 'layer', 'rms'"),
    ({"placement": "middle"}, "`placement` must be one of 'pre', 'post', 'sandwich', "),
    ({"dropout": 1.0}, "`dropout` must be a probability"),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_arguments_are_named(change, words):
    sizes = {"vocabulary_size": N, "num_layers": L, "hidden_dim": D, "num_heads": H}
    with pytest.raises(ValueError, match=f"(?i){words}"):
        kseq.models.TransformerLM(**{**sizes, **change})


def test_a_bias_must_have_the_heads_of_the_stack():
    with pytest.raises(ValueError, match="`bias` must have as many heads"):
        language_model(positions=kseq.layers.AlibiBias(3))


def test_rows_beyond_the_learned_positions_are_refused():
    model = language_model(positions=PositionEmbedding(4))
    with pytest.raises(ValueError, match=r"Positions must lie in \[0, 4\)"):
        model(ROWS)
    with pytest.raises(ValueError, match=r"fewer learned positions.*max_length=5"):
        model.empty_state(2, 5)


def test_a_misspelt_argument_is_refused():
    with pytest.raises(TypeError, match="dropuot"):
        language_model(dropuot=0.1)


ALL = {
    "intermediate_dim": 11,
    "num_key_value_heads": 1,
    "positions": "t5",
    "activation": "reglu",
    "norm": "rms",
    "placement": "sandwich",
    "dropout": 0.1,
    "use_bias": False,
    "tie_embeddings": False,
    "packed": True,
    "remat": True,
    "name": "other",
    "trainable": False,
    "dtype": "mixed_bfloat16",
}


def test_config_round_trip():
    model = kseq.models.TransformerLM(np.int64(N), L, D, H, **ALL)
    config = model.get_config()
    for name, value in ALL.items():
        if name != "dtype":
            assert config[name] == value
    again = kseq.models.TransformerLM.from_config(config)
    assert again.get_config() == config
    assert again.trainable is False
    assert [w.path for w in again.weights] == [w.path for w in model.weights]


@pytest.mark.parametrize("positions", ["learned", "yarn"])
def test_a_position_layer_is_cloned(positions):
    """Its options too; a model of the config has positions of its own."""
    layer = POSITIONS[positions]()
    model = language_model(positions=layer)
    config = model.get_config()
    again = kseq.models.TransformerLM.from_config(config)
    assert again.get_config() == config
    again.set_weights(model.get_weights())
    real_close(again(ROWS), model(ROWS), REAL, 1e-6)
    assert not layer.built  # a pattern, which several models may share
    spread(again, 1)
    assert (to_numpy(again(ROWS)) != to_numpy(model(ROWS)))[REAL].any()
    if positions == "yarn":
        kept = [block.mixer.rotary.get_config()["scaling"] for block in again.blocks]
        assert kept == [layer.get_config()["scaling"]] * L
