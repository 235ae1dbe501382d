"""The decoder block: a float64 reference, torch, causality, caches, files."""

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same, gradients, set_weights_by_seed, to_numpy
from layers.block_weights import float64, norms, torch_weights
from reference.blocks import connection, feed_forward, multi_head, norm

from kseq.backend import compiled
from kseq.layers import (
    GRU,
    LSTM,
    FeedForward,
    LinearAttention,
    MinGRU,
    MultiHeadAttention,
    RotaryEmbedding,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)

B, T, S, D, E, H, K, F = 2, 5, 4, 6, 7, 2, 3, 8
SEQUENCES = {"return_sequences": True, "return_state": True}


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def make(mixer=None, cross=None, activation="relu", memory=None, **options):
    block = TransformerDecoderBlock(
        mixer or MultiHeadAttention(H, K),
        FeedForward(F, activation=activation),
        cross_attention=cross,
        **options,
    )
    block.build((B, T, D), memory)
    set_weights_by_seed(block, 3)
    return block


def with_memory(width=E, **options):
    cross = MultiHeadAttention(H, K)
    return make(cross=cross, memory=(B, S, width), **options)


def holes(*shape, seed=1):
    mask = np.random.default_rng([seed, *shape]).random(shape) > 0.4
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich"])
def test_values(placement):
    block, x, memory = with_memory(placement=placement), draw(B, T, D), draw(B, S, E)
    mask, memory_mask = holes(B, T), holes(B, S)

    def mixer(x):
        masks = {"query_mask": mask, "value_mask": mask, "use_causal_mask": True}
        return multi_head(x, x, float64(block.mixer), **masks)

    def cross(x):
        masks = {"query_mask": mask, "value_mask": memory_mask}
        return multi_head(x, memory, float64(block.cross_attention), **masks)

    def each(x):
        return feed_forward(x, "relu", *float64(block.feed_forward))

    want = x.astype("float64")
    for sublayer, layer in (
        (mixer, block.mixer_connection),
        (cross, block.cross_connection),
        (each, block.feed_forward_connection),
    ):
        want = connection(want, sublayer, placement, norms(layer))
    memory = np.where(memory_mask[..., None], memory, 0)
    y = to_numpy(block(x, memory, mask=mask, memory_mask=memory_mask))
    assert_close("y", y[mask], want[mask])


def test_parallel_values():
    """One norm for both, as in GPT-J."""
    block, x = make(parallel=True, norm="rms"), draw(B, T, D)
    (parameters,) = norms(block.mixer_connection)
    h = norm(x.astype("float64"), parameters)
    mixed = multi_head(h, h, float64(block.mixer), use_causal_mask=True)
    want = x + mixed + feed_forward(h, "relu", *float64(block.feed_forward))
    assert_close("y", block(x), want)
    assert not hasattr(block, "feed_forward_connection")


@pytest.mark.torch
@pytest.mark.parametrize("first", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_outputs_and_gradients_of_torch(activation, first):
    torch = pytest.importorskip("torch")
    placement = "pre" if first else "post"
    block = with_memory(D, activation=activation, placement=placement)
    twin = torch.nn.TransformerDecoderLayer(
        D, H, F, 0.0, activation, batch_first=True, norm_first=first
    )
    names = torch_weights(block, twin)
    x, memory = draw(B, T, D), draw(B, S, D)
    memory_mask = holes(B, S)
    got = gradients(
        lambda x, memory: block(x, memory, memory_mask=memory_mask),
        [x, memory],
        block.trainable_variables,
    )
    given = [torch.tensor(a, requires_grad=True) for a in (x, memory)]
    y = twin(
        *given,
        tgt_mask=torch.triu(torch.ones(T, T, dtype=torch.bool), 1),
        memory_key_padding_mask=torch.tensor(~memory_mask),
    )
    places = torch.arange(y.numel(), dtype=torch.float32)
    weights = torch.cos(places * 1.7 + 0.3).reshape(y.shape)  # of `weighted_sum`
    (y * weights).sum().backward()
    assert_close("y", got[0], y.detach().numpy())
    assert_close("inputs", got[1], [g.grad.numpy() for g in given], gradient=True)
    for variable, gradient in zip(block.trainable_variables, got[2], strict=True):
        want = names[variable.path]().numpy()
        assert_close(variable.path, gradient.ravel(), want.ravel(), gradient=True)


MIXERS = {
    "MultiHeadAttention": lambda: MultiHeadAttention(H, K),
    "KerasMultiHeadAttention": lambda: keras.layers.MultiHeadAttention(H, K),
    "LinearAttention": lambda: LinearAttention(H, K),
    "GRU": lambda: GRU(D, **SEQUENCES),
    "MinGRU": lambda: MinGRU(D, **SEQUENCES),
    "KerasGRU": lambda: keras.layers.GRU(D, **SEQUENCES),
    "KerasConv1D": lambda: keras.layers.Conv1D(D, 3, padding="causal"),
}


@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "parallel"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_the_future_does_not_reach_the_past(mixer, parallel):
    """d y[t] / d x[u] is exactly 0 for u > t."""
    block, x = make(MIXERS[mixer](), parallel=parallel), draw(B, T, D)
    for t in (0, 2):
        _, (d_x,), _ = gradients(lambda x, t=t: block(x)[:, t], [x], [])
        assert not d_x[:, t + 1 :].any()
        assert d_x[:, t].any()
        assert t == 0 or d_x[:, 0].any()


def rotary(**options):
    return MultiHeadAttention(
        4, K, num_key_value_heads=2, rotary=RotaryEmbedding(rotary_dim=2), **options
    )


CACHED = {
    "MultiHeadAttention": lambda: MultiHeadAttention(H, K),
    "rotary": rotary,
    "window": lambda: rotary(window=2),
    "LinearAttention": lambda: LinearAttention(H, K),
    "GRU": lambda: GRU(D, **SEQUENCES),
    "LSTM": lambda: LSTM(D, **SEQUENCES),
    "MinGRU": lambda: MinGRU(D, **SEQUENCES),
    "KerasLSTM": lambda: keras.layers.LSTM(D, **SEQUENCES),
}


def stepping(block):
    def step(x, cache, t, masks):
        return block(x, cache=cache, cache_index=t, **masks)

    return compiled(step, block.variables)


@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "parallel"])
@pytest.mark.parametrize("mixer", CACHED)
def test_cached_steps_equal_the_full_run(mixer, parallel):
    block, x = make(CACHED[mixer](), parallel=parallel), draw(B, T, D)
    want, step = block(x), stepping(block)
    cache, found = block.empty_cache(B, T), []
    for t in range(T):
        y, cache = step(x[:, t : t + 1], cache, np.int32(t), {})
        found.append(to_numpy(y))
    assert_close("y", np.concatenate(found, 1), want)


def test_cached_steps_read_the_memory_once_projected():
    """With a mask of the memory; the remembered keys are those of `empty_cache`."""
    block, x, memory = with_memory(), draw(B, T, D), draw(B, S, E)
    memory_mask = holes(B, S)
    memory[~memory_mask] = np.nan
    want = block(x, memory, memory_mask=memory_mask)
    cache, step = block.empty_cache(B, T, memory, memory_mask), stepping(block)
    found = []
    for t in range(T):
        masks = {"memory_mask": memory_mask}
        y, cache = step(x[:, t : t + 1], cache, np.int32(t), masks)
        found.append(to_numpy(y))
    assert_close("y", np.concatenate(found, 1), want)


def test_prompts_of_different_lengths():
    """Right-padded with NaN, then a step with an index for each row."""
    block, x, lengths = make(rotary()), draw(B, T, D), np.array([2, 4], "int32")
    mask = np.arange(4) < lengths[:, None]
    prompt = np.where(mask[..., None], x[:, :4], np.nan)
    start = np.zeros(B, "int32")
    first, cache = block(
        prompt, mask=mask, cache=block.empty_cache(B, T), cache_index=start
    )
    new = x[np.arange(B), lengths][:, None]
    y, _ = block(new, cache=cache, cache_index=lengths)
    for b, length in enumerate(lengths):
        want = to_numpy(block(x[b : b + 1, : length + 1]))[0]
        assert_close(f"prompt {b}", first[b, :length], want[:-1])
        assert_close(f"row {b}", y[b, 0], want[-1])


def test_left_padding_with_positions():
    block, x = make(rotary()), draw(1, 4, D)
    want = to_numpy(block(x))
    mask = np.array([[False, False, True, True, True]])
    prompt = np.concatenate([np.full((1, 2, D), np.nan, "float32"), x[:, :3]], 1)
    first, cache = block(
        prompt,
        mask=mask,
        positions=np.array([[0, 0, 0, 1, 2]]),
        cache=block.empty_cache(1, 6),
        cache_index=0,
    )
    y, _ = block(x[:, 3:], positions=np.array([[3]]), cache=cache, cache_index=5)
    assert_close("prompt", first[:, 2:], want[:, :3])
    assert_close("y", y, want[:, 3:])


def test_masked_steps_leave_the_state_of_a_recurrent_mixer():
    block, x = make(GRU(D, **SEQUENCES)), draw(B, 3, D)
    mask = np.array([[True, False, True], [True, True, True]])
    want = to_numpy(block(x, mask=mask))
    cache, found = block.empty_cache(B, 3), []
    for t in range(3):
        y, cache = block(
            x[:, t : t + 1], mask=mask[:, t : t + 1], cache=cache, cache_index=t
        )
        found.append(to_numpy(y))
    assert_close("y", np.concatenate(found, 1)[mask], want[mask])


def test_a_saved_model_of_both_blocks(tmp_path):
    """Masks of the embeddings reach the mixers, the cross-attention and the loss."""
    parts = {"placement": "post", "rezero": True, "remat": True, "seed": 1}
    encoder = TransformerEncoderBlock(
        GRU(D, return_sequences=True), FeedForward(F, activation="geglu"), **parts
    )
    decoder = TransformerDecoderBlock(
        MultiHeadAttention(H, K),
        FeedForward(F),
        cross_attention=MultiHeadAttention(H, K),
        **parts,
    )
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    embedding = keras.layers.Embedding(5, D, mask_zero=True)
    memory = encoder(embedding(source))
    model = keras.Model([source, target], decoder(embedding(target), memory))
    set_weights_by_seed(model, 2)
    ids = [np.array([[1, 2, 0]]), np.array([[3, 4, 2, 0]])]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    want = to_numpy(model(ids))
    assert_same("y", again(ids), want)
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    table = to_numpy(embedding.embeddings)
    table[0] = np.nan
    embedding.set_weights([table])
    assert_same("real outputs", to_numpy(model(ids))[:, :3], want[:, :3])


def test_errors():
    x, memory = draw(B, T, D), draw(B, S, E)
    parts = MultiHeadAttention(H, K), FeedForward(F)
    with pytest.raises(TypeError, match="`cross_attention` must be a Keras layer"):
        TransformerDecoderBlock(*parts, cross_attention="attention")
    with pytest.raises(ValueError, match="`parallel` excludes `cross_attention`"):
        TransformerDecoderBlock(
            *parts, cross_attention=MultiHeadAttention(H, K), parallel=True
        )
    with pytest.raises(ValueError, match=r"`sequences` must have shape \(B, T, D\)"):
        TransformerDecoderBlock(*parts)(draw(B, D))
    with pytest.raises(ValueError, match="`memory` must be given where there is a"):
        with_memory()(x)
    with pytest.raises(ValueError, match="`memory` must be given where there is a"):
        with_memory().empty_cache(B, T)
    with pytest.raises(ValueError, match="`memory` must be given where there is a"):
        make()(x, memory)
    with pytest.raises(ValueError, match="`memory` must be given where there is a"):
        TransformerDecoderBlock(*parts)(x, memory)
    with pytest.raises(TypeError, match="`mask` must be boolean"):
        make()(x, mask=np.ones((B, T)))
    with pytest.raises(TypeError, match="`memory_mask` must be boolean"):
        with_memory()(x, memory, memory_mask=np.ones((B, S)))
    block = make(cross=keras.layers.MultiHeadAttention(H, K), memory=(B, S, E))
    with pytest.raises(ValueError, match="`cross_attention` can't go token by token"):
        block.empty_cache(B, T, memory)
