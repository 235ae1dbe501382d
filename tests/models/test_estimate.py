"""What a training step takes, against hand counts and what XLA says."""

import keras
import numpy as np
import pytest
from helpers import on_jax

import kseq
from kseq.models.estimate import Estimate, Stack

B, T, D, F, L, H, N = 2, 3, 8, 20, 2, 2, 13


def stack(**options):
    sizes = {
        "batch": B,
        "length": T,
        "num_layers": L,
        "width": D,
        "heads": H,
        "key_value_heads": H,
        "intermediate_dim": F,
        "activation": "relu",
        "norm": "layer",
        "placement": "pre",
        "causal": True,
        "remat": False,
    }
    return Stack(**{**sizes, **options})


def test_operations_are_those_of_the_products():
    """Counted product by product: two a multiplication, thrice with the backward."""
    tokens = B * T
    block = tokens * (4 * D * D + 2 * D * F) + 2 * B * T * T * D
    model = kseq.models.TransformerLM(N, L, D, H, intermediate_dim=F)
    assert model.estimate(B, T).training_flops == 6 * (L * block + tokens * D * N)
    again = kseq.models.TransformerLM(N, L, D, H, intermediate_dim=F, remat=True)
    flops = again.estimate(B, T).training_flops
    assert flops == 6 * (L * block + tokens * D * N) + 2 * L * block


def test_operations_of_grouped_heads_and_gates():
    block = B * T * (2 * D * D + 2 * D * D // H + 3 * D * F) + 2 * B * T * T * D
    assert stack(key_value_heads=1, activation="swiglu").flops() == 6 * L * block


def test_operations_of_encoder_and_decoder():
    tokens = B * T
    encoder = tokens * (4 * D * D + 2 * D * F) + 2 * B * T * T * D
    decoder = tokens * (8 * D * D + 2 * D * F) + 4 * B * T * T * D
    model = kseq.models.TransformerSeq2Seq(11, N, L, D, H, intermediate_dim=F)
    want = 6 * (L * (encoder + decoder) + tokens * D * N)
    assert model.estimate(B, T).training_flops == want


def test_long_rows_are_counted_in_blocks():
    """1,024 queries in 4 blocks; of the keys, those that the causal mask hides whole
    aren't computed, and the scores are computed twice: 7 products in the place of 6.
    """
    from kseq.ops.attention_cut import KEYS

    seen = [-(-256 * i // KEYS) * KEYS for i in range(1, 5)]
    rest = stack(length=1024).tokens * (4 * D * D + 2 * D * F) * 3
    pairs = 256 * sum(seen)
    assert stack(length=1024).flops() == 2 * L * (rest + 7 * B * pairs * D)
    whole = stack(length=1024, causal=False).flops()
    assert whole == 2 * L * (rest + 7 * B * 1024 * 1024 * D)
    # a window of 300: the last 256 queries see no key before 768 - 299
    first = [max(0, 256 * i - 299) // KEYS * KEYS for i in range(4)]
    pairs -= 256 * sum(first)
    assert stack(length=1024, window=300).flops() == 2 * L * (rest + 7 * B * pairs * D)
    # and the pairs are not held
    per_token = [stack(length=n).kept() / n for n in (1024, 2048)]
    assert per_token[0] == per_token[1]
    assert stack(length=511).kept() / 511 > 10 * per_token[0]


def test_parameters_are_those_of_the_model():
    for options in (
        {},
        {"dropout": 0.1},
        {"positions": kseq.layers.PositionEmbedding(9)},
    ):
        model = kseq.models.TransformerLM(N, L, D, H, **options)
        assert model.estimate(B, T).parameters == model.count_params()


def test_frozen_weights_have_no_moments():
    model = kseq.models.TransformerLM(4001, 1, D, H)
    before = model.estimate(8, 8).peak_bytes
    model.token_embedding.trainable = False
    # two moments of the table; its gradient is less than the logits that it replaces
    assert before - model.estimate(8, 8).peak_bytes == 2 * 4 * 4001 * D


def test_memory_grows_as_it_should():
    """Weights once, activations with the batch, and with remat much less."""
    model = kseq.models.TransformerLM(N, 4, D, H)
    one, two, three = (model.estimate(n, 64).peak_bytes for n in (1, 2, 3))
    assert two - one == three - two
    assert kseq.models.TransformerLM(N, 4, D, H, remat=True).estimate(
        3, 64
    ).peak_bytes < 0.5 * three  # fmt: skip


def test_it_prints():
    text = str(Estimate(1_234_567, 2_500_000_000, 3 * 2**20))
    assert text == "1,234,567 parameters, 2.5 GFLOPs and 3 MiB for a training step"


def test_bad_sizes_are_named():
    model = kseq.models.TransformerLM(N, L, D, H)
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer"):
        model.estimate(0, 3)
    with pytest.raises(ValueError, match="`length` must be a positive integer"):
        model.estimate(2, None)


@on_jax
@pytest.mark.slow
@pytest.mark.parametrize(
    ("builder", "options", "rows"),
    [
        (
            kseq.models.TransformerLM,
            {"vocabulary_size": 2000, "num_layers": 2, "num_heads": 4},
            (8, 96),
        ),
        (
            kseq.models.TransformerLM,
            {
                "vocabulary_size": 100,
                "num_layers": 3,
                "num_heads": 4,
                "placement": "post",
                "norm": "rms",
                "activation": "swiglu",
            },
            (4, 128),
        ),
        (
            kseq.models.TransformerSeq2Seq,
            {
                "source_vocabulary_size": 500,
                "target_vocabulary_size": 500,
                "num_layers": 2,
                "num_heads": 4,
            },
            (8, 64),
        ),
    ],
    ids=["language model", "gated, post-norm", "encoder-decoder"],
)
def test_it_is_within_15_percent_of_what_xla_says(builder, options, rows):
    model = builder(hidden_dim=64, **options)
    flops, peak = measured(model, *rows)
    estimate = model.estimate(*rows)
    assert abs(estimate.training_flops / flops - 1) < 0.15
    assert abs(estimate.peak_bytes / peak - 1) < 0.15


@on_jax
@pytest.mark.slow
def test_with_remat_it_is_within_25_percent():
    """What XLA keeps of one block, while it computes it again, is up to XLA."""
    model = kseq.models.TransformerLM(500, 4, 64, 4, remat=True)
    flops, peak = measured(model, 8, 96)
    estimate = model.estimate(8, 96)
    assert abs(estimate.training_flops / flops - 1) < 0.15
    assert abs(estimate.peak_bytes / peak - 1) < 0.25


def measured(model, batch, length):
    """Operations and bytes of one compiled step of Adam that gives up its inputs."""
    import jax

    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    loss = kseq.training.MaskedCrossentropy()

    def total(weights, others, x, y):
        logits, others = model.stateless_call(weights, others, x, training=True)
        return loss(y, logits), others

    def step(weights, others, moments, x, y):
        (value, others), gradients = jax.value_and_grad(total, has_aux=True)(
            weights, others, x, y
        )
        weights, moments = optimizer.stateless_apply(moments, gradients, weights)
        return value, weights, others, moments

    ids = np.ones((batch, length), "int32")
    x = ids
    if isinstance(model, kseq.models.TransformerSeq2Seq):
        x = {"source_ids": ids, "target_ids": ids}
    state = (model.trainable_variables, model.non_trainable_variables)
    values = [[v.value for v in group] for group in (*state, optimizer.variables)]
    program = jax.jit(step, donate_argnums=(0, 1, 2)).lower(*values, x, ids).compile()
    memory = program.memory_analysis()
    peak = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
    )
    return program.cost_analysis()["flops"], peak
