"""Small models with weights that matter, three rows of ids, and their parameters."""

import keras
import numpy as np
from helpers import to_numpy
from layers.block_weights import float64, norms

import kseq

N, L, D, H = 13, 2, 8, 2
ROWS = np.array(
    [  # whole, padded on the right, padded on the left
        [5, 6, 7, 8, 9],
        [3, 4, 10, 0, 0],
        [0, 0, 11, 12, 2],
    ]
)
SOURCES = np.array(
    [
        [4, 9, 8, 7, 6, 5, 2],
        [7, 3, 8, 2, 0, 0, 0],
        [0, 0, 0, 0, 0, 6, 2],
    ]
)
PAIR = {"source_ids": SOURCES, "target_ids": ROWS}


def spread(model, seed=0, scale=0.6):
    """Gives every weight, biases too, a normal value, so that all of them matter."""
    rng = np.random.default_rng(seed)
    model.set_weights(
        [
            # what the seed of a dropout layer holds are integers
            w if w.dtype.kind in "iu" else rng.normal(0, scale, w.shape)
            for w in model.get_weights()
        ]
    )
    return model


def language_model(seed=0, **options):
    return spread(kseq.models.TransformerLM(N, L, D, H, **options), seed)


def seq2seq(seed=0, **options):
    options = {"source_vocabulary_size": 11, "target_vocabulary_size": N, **options}
    model = kseq.models.TransformerSeq2Seq(
        num_layers=L, hidden_dim=D, num_heads=H, **options
    )
    return spread(model, seed)


def encoder(seed=0, **options):
    return spread(kseq.models.TransformerEncoder(N, L, D, H, **options), seed)


def recurrent(seed=0, **options):
    return spread(kseq.models.RecurrentLM(N, 6, 7, num_layers=2, **options), seed)


def block_parameters(block):
    """A block as `reference.transformer` takes it."""
    connections = [block.mixer_connection, block.feed_forward_connection]
    found = {
        "mixer": _with_bias(_projections(block.mixer)),
        "feed_forward": _with_bias(
            [block.feed_forward.input_dense, block.feed_forward.output_dense]
        ),
    }
    if getattr(block, "cross_attention", None) is not None:
        connections.insert(1, block.cross_connection)
        found["cross"] = _with_bias(_projections(block.cross_attention))
    return {**found, "norms": [norms(connection) for connection in connections]}


def stack_parameters(embedding, blocks, norm, head=None):
    """A stack as `reference.transformer` takes it."""
    found = {
        "table": float64(embedding)[0],
        "blocks": [block_parameters(block) for block in blocks],
        "norm": None if norm is None else float64(norm),
    }
    if head is not None:
        kernel = float64(head)[0]
        tied = isinstance(head, keras.layers.Embedding)
        found["output"] = kernel.T if tied else kernel
    return found


def _projections(attention):
    return [
        attention.query_dense,
        attention.key_dense,
        attention.value_dense,
        attention.output_dense,
    ]


def _with_bias(denses):
    found = []
    for dense in denses:
        kernel, *bias = float64(dense)
        found += [kernel, bias[0] if bias else 0.0]
    return found


def real_close(got, want, real, tolerance=2e-5):
    """Raises unless both agree where `real` is True."""
    np.testing.assert_allclose(
        to_numpy(got)[real], to_numpy(want)[real], rtol=tolerance, atol=tolerance
    )
