"""Sizes of published Transformers, by name."""

from functools import partial
from typing import Any

import keras

from kseq._checks import message
from kseq.layers import PositionEmbedding

_VASWANI = {
    "source_vocabulary_size": 37_000,
    "target_vocabulary_size": 37_000,
    "num_layers": 6,
    "share_embeddings": True,
    "placement": "post",
    "activation": "relu",
    "positions": "sinusoidal",
}
# builder -> name -> its arguments; what is called makes a new layer
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "TransformerLM": {
        "gpt2-small": {
            "vocabulary_size": 50_257,
            "num_layers": 12,
            "hidden_dim": 768,
            "num_heads": 12,
            "positions": partial(PositionEmbedding, 1024),
            "activation": "gelu_tanh",
            "kernel_initializer": partial(keras.initializers.RandomNormal, stddev=0.02),
            "dropout": 0.1,
        },
        "llama-tiny": {
            "vocabulary_size": 32_000,
            "num_layers": 6,
            "hidden_dim": 288,
            "num_heads": 6,
            "intermediate_dim": 768,
            "positions": "rotary",
            "activation": "swiglu",
            "norm": "rms",
            "use_bias": False,
        },
    },
    "TransformerSeq2Seq": {
        "vaswani-base": {
            **_VASWANI,
            "hidden_dim": 512,
            "num_heads": 8,
            "dropout": 0.1,
        },
        "vaswani-big": {
            **_VASWANI,
            "hidden_dim": 1024,
            "num_heads": 16,
            "dropout": 0.3,
        },
    },
}


def preset_arguments(builder: str, preset: str) -> dict[str, Any]:
    """The arguments of `builder` that the preset stands for."""
    presets = PRESETS.get(builder, {})
    if preset not in presets:
        names = ", ".join(map(repr, presets)) or "there is none"
        raise ValueError(
            message(f"`preset` must be one of `{builder}`: {names}.", preset=preset)
        )
    return {
        key: value() if callable(value) else value
        for key, value in presets[preset].items()
    }
