"""The encoder and its heads: a float64 forward, padding, configs, files."""

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same, gradients, to_numpy
from models.small_models import ROWS, D, H, L, N, encoder, real_close, stack_parameters
from reference import transformer
from reference.blocks import PLAIN, norm
from reference.positions import plain

import kseq

REAL = ROWS != 0
HEADS = {
    "classifier": lambda model: model.classifier(3, pooling="last", dropout=0.2),
    "tagger": lambda model: model.tagger(3, dropout=0.2),
    "masked_lm": lambda model: model.masked_lm(),
}


def hidden(model, **options):
    """In float64, rotary positions."""
    parameters = stack_parameters(model.token_embedding, model.blocks, None)
    options = {"placement": "pre", "activation": "gelu", **options}
    x = transformer.stack(
        parameters["table"][ROWS],
        REAL,
        parameters["blocks"],
        causal=False,
        theta=plain(D // H, 1e4),
        **options,
    )
    return x if model.final_norm is None else norm(x, float64(model.final_norm))


def float64(layer):
    return [to_numpy(w).astype("float64") for w in layer.weights]


@pytest.mark.parametrize(
    "options",
    [{}, {"placement": "post", "activation": "relu"}, {"norm": "rms"}],
    ids=["pre", "post", "rms"],
)
def test_hidden_states(options):
    model = encoder(**options)
    options = {name: v for name, v in options.items() if name != "norm"}
    real_close(model(ROWS), hidden(model, **options), REAL)


def test_the_heads():
    """Each on the states of the encoder, whose weights it shares."""
    model = encoder()
    states = hidden(model)
    found = {name: make(model) for name, make in HEADS.items()}
    for head in found.values():
        for weight in model.weights:
            assert any(weight is other for other in head.weights)
    kernel, bias = float64(found["tagger"].get_layer("tagger"))
    real_close(found["tagger"](ROWS), states @ kernel + bias, REAL)
    last = np.stack([row[real][-1] for row, real in zip(states, REAL)])
    kernel, bias = float64(found["classifier"].get_layer("classifier"))
    assert_close("classes", found["classifier"](ROWS), last @ kernel + bias)
    kernel, bias = float64(found["masked_lm"].get_layer("transform"))
    transformed = norm(
        PLAIN["gelu"](states @ kernel + bias),
        float64(found["masked_lm"].get_layer("transform_norm")),
    )
    table = float64(model.token_embedding)[0]
    real_close(found["masked_lm"](ROWS), transformed @ table.T, REAL)


def test_every_token_sees_the_whole_row():
    model = encoder()
    _, _, (d_table,) = gradients(
        lambda: model(ROWS[:1])[:, 1], [], [model.token_embedding.embeddings]
    )
    assert d_table[ROWS[0]].any(axis=1).all()


@pytest.mark.parametrize("head", ["classifier", "tagger"])
def test_padding_may_hold_any_embedding(head):
    model = encoder(positions="sinusoidal")
    headed = HEADS[head](model)
    found = []
    for value in (0, np.nan):
        table = to_numpy(model.token_embedding.embeddings).copy()
        table[0] = value
        model.token_embedding.embeddings.assign(table)

        def loss(y):
            if head == "classifier":
                return keras.ops.sum(y**2)
            return kseq.training.MaskedCrossentropy()(np.where(REAL, 2, 0), y)

        y, _, d_weights = gradients(
            lambda: headed(ROWS), [], headed.trainable_variables, loss=loss
        )
        found.append((y if head == "classifier" else y[REAL], d_weights))
    for got, want in zip(*(keras.tree.flatten(f) for f in found)):
        np.testing.assert_array_equal(got, want)
        assert np.isfinite(want).all()


@pytest.mark.parametrize("head", HEADS)
def test_a_model_with_a_head_is_saved(head, tmp_path):
    """Its shapes may be unknown, and it is loaded with the class that warns."""
    model = HEADS[head](encoder(positions="sinusoidal", dropout=0.1))
    assert model.output.shape[0] is None
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again) is type(model)
    assert_same("outputs", again(ROWS), model(ROWS))


def test_bad_arguments_are_named():
    for change, words in (
        ({"num_heads": 3}, "`num_heads` must divide `hidden_dim`"),
        ({"positions": "rope"}, "`positions` must be one of"),
        ({"vocabulary_size": 0}, "`vocabulary_size` must be a positive integer"),
        ({"num_layers": 0}, "`num_layers` must be a positive integer"),
    ):
        sizes = {"vocabulary_size": N, "num_layers": L, "hidden_dim": D, "num_heads": H}
        with pytest.raises(ValueError, match=words):
            kseq.models.TransformerEncoder(**{**sizes, **change})
    model = encoder()
    with pytest.raises(ValueError, match="`num_classes` must be a positive integer"):
        model.classifier(0)
    with pytest.raises(ValueError, match="`pooling` must be one of 'mean'"):
        model.classifier(3, pooling="sum")
    with pytest.raises(ValueError, match="`dropout` must be a probability"):
        model.tagger(3, dropout=1.5)


ALL = {
    "intermediate_dim": 11,
    "num_key_value_heads": 1,
    "positions": "t5",
    "activation": "swiglu",
    "norm": "rms",
    "placement": "sandwich",
    "dropout": 0.1,
    "use_bias": False,
    "remat": True,
    "name": "other",
    "trainable": False,
    "dtype": "mixed_bfloat16",
}


def test_config_round_trip():
    model = kseq.models.TransformerEncoder(N, L, D, H, **ALL)
    config = model.get_config()
    for name, value in ALL.items():
        if name != "dtype":
            assert config[name] == value
    again = kseq.models.TransformerEncoder.from_config(config)
    assert again.get_config() == config
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
