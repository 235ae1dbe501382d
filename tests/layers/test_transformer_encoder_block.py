"""The encoder block: a float64 reference, torch, masks through a stack."""

import keras
import numpy as np
import pytest
from helpers import (
    assert_close,
    assert_same,
    gradients,
    set_weights_by_seed,
    to_numpy,
    weighted_sum,
)
from layers.block_weights import float64, norms, torch_weights
from reference.blocks import connection, feed_forward, multi_head

from kseq.diagnostics import attention_maps
from kseq.layers import (
    Embedding,
    FeedForward,
    MultiHeadAttention,
    TransformerEncoderBlock,
)

B, T, D, H, K, F = 2, 5, 6, 2, 3, 7


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def make(activation="relu", **options):
    block = TransformerEncoderBlock(
        MultiHeadAttention(H, K), FeedForward(F, activation=activation), **options
    )
    block.build((B, T, D))
    set_weights_by_seed(block, 3)
    return block


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("placement", ["pre", "post", "sandwich"])
def test_values(placement, norm):
    block, x = make("swiglu", placement=placement, norm=norm), draw(B, T, D)
    mask = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], bool)
    pairs = np.random.default_rng(1).random((B, T, T)) > 0.3

    def mixer(x):
        return multi_head(
            x, x, float64(block.mixer),
            query_mask=mask, value_mask=mask, attention_mask=pairs,
        )  # fmt: skip

    def each(x):
        return feed_forward(x, "swiglu", *float64(block.feed_forward))

    want = connection(
        x.astype("float64"), mixer, placement, norms(block.mixer_connection)
    )
    want = connection(want, each, placement, norms(block.feed_forward_connection))
    y = to_numpy(block(x, mask=mask, attention_mask=pairs))
    assert_close("y", y[mask], want[mask])


@pytest.mark.torch
@pytest.mark.parametrize("first", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_outputs_and_gradients_of_torch(activation, first):
    torch = pytest.importorskip("torch")
    block = make(activation, placement="pre" if first else "post")
    twin = torch.nn.TransformerEncoderLayer(
        D, H, F, 0.0, activation, batch_first=True, norm_first=first
    )
    names = torch_weights(block, twin)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
    x = draw(B, T, D)
    real = mask[..., None]

    def call(x):
        return keras.ops.where(real, block(x, mask=mask), 0.0)

    got = gradients(call, [x], block.trainable_variables)
    given = torch.tensor(x, requires_grad=True)
    y = twin(given, src_key_padding_mask=torch.tensor(~mask))
    y = torch.where(torch.tensor(real), y, 0.0)
    places = torch.arange(y.numel(), dtype=torch.float32)
    weights = torch.cos(places * 1.7 + 0.3).reshape(y.shape)  # of `weighted_sum`
    (y * weights).sum().backward()
    assert_close("y", got[0], y.detach().numpy())
    assert_close("d x", got[1][0], given.grad.numpy(), gradient=True)
    for variable, gradient in zip(block.trainable_variables, got[2], strict=True):
        want = names[variable.path]().numpy()
        assert_close(variable.path, gradient.ravel(), want.ravel(), gradient=True)


MIXERS = {"kseq": MultiHeadAttention, "keras": keras.layers.MultiHeadAttention}


@pytest.mark.parametrize("mixer", MIXERS)
def test_three_post_norm_blocks_keep_their_padding(mixer):
    """Pads get weight 0 in every block; NaN in their embedding changes nothing.

    Keras's attention in blocks of plain Keras gives them 0, .23 and .31.
    """
    ids = np.array([[1, 2, 3, 0, 0]])
    embedding = Embedding(4, D, mask_zero=True)
    blocks = [
        TransformerEncoderBlock(MIXERS[mixer](H, K), FeedForward(F), placement="post")
        for _ in range(3)
    ]

    def stack(ids, **masks):
        x = embedding(ids)
        for block in blocks:
            x = block(x + 0 if masks else x, **masks)
        return x

    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, stack(inputs))
    for weights in attention_maps(model, ids).values():
        assert not weights[..., 3:].any()
        assert_close("sums", weights.sum(-1)[:, :, :3], np.ones((1, H, 3)))
    mask = ids != 0
    real = embedding.embeddings
    trained = [v for v in model.trainable_variables if v is not real]

    def run(masks):
        function = (lambda i: stack(i, **masks)) if masks else model

        def loss(y):  # of real tokens, as the losses of kseq take it
            return weighted_sum(keras.ops.where(mask[..., None], y, 0.0))

        y, _, d_weights = gradients(function, [ids], [*trained, real], loss=loss)
        return y[:, :3], d_weights[:-1], to_numpy(d_weights[-1])[1:]

    through_keras = run({})
    explicit = run({"mask": mask})
    assert_close("explicit", explicit, through_keras, gradient=True)
    table = to_numpy(real)
    for value in (1e4, np.nan):
        embedding.set_weights([np.where(np.arange(4)[:, None] == 0, value, table)])
        assert_same("through Keras", run({}), through_keras)
        assert_same("explicit", run({"mask": mask}), explicit)


def test_a_pre_norm_block_of_zeros_is_the_identity():
    block, x = make(), draw(B, T, D)
    for dense in (block.mixer.output_dense, block.feed_forward.output_dense):
        dense.set_weights([np.zeros(w.shape) for w in dense.weights])
    assert_same("y", block(x), x)


def test_sublayers_of_one_seed_drop_unlike():
    """Both connections get ones; a shared stream would drop the same of both."""
    block = make(dropout=0.5, stochastic_depth=0.5, seed=1)
    first, second = (
        to_numpy(
            connection(
                np.zeros((31, T, D), "float32"),
                sublayer=keras.ops.ones_like,
                training=True,
            )
        )
        for connection in (block.mixer_connection, block.feed_forward_connection)
    )
    assert ((first > 0) != (second > 0)).any()
    rows = [(y > 0).any((1, 2)) for y in (first, second)]
    assert (rows[0] != rows[1]).any()


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision(half):
    want = make()(draw(B, T, D))
    block = make(dtype=f"mixed_{half}")
    assert_close("y", block(draw(B, T, D)), want, "bfloat16")


def test_errors():
    parts = MultiHeadAttention(H, K), FeedForward(F)
    with pytest.raises(TypeError, match="`mixer` must be a Keras layer"):
        TransformerEncoderBlock("attention", parts[1])
    with pytest.raises(TypeError, match="`feed_forward` must be a Keras layer"):
        TransformerEncoderBlock(parts[0], None)
    with pytest.raises(ValueError, match="`placement` must be one of"):
        TransformerEncoderBlock(*parts, placement="first")
    with pytest.raises(ValueError, match=r"`sequences` must have shape \(B, T, D\)"):
        TransformerEncoderBlock(*parts)(draw(B, D))
    with pytest.raises(TypeError, match="`mask` must be boolean"):
        make()(draw(B, T, D), mask=np.ones((B, T)))
