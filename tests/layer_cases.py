"""The catalogue: one case for each exported layer. What holds for all is tested here.

A new layer needs a line in `LAYER_CASES`; `conformance/` does the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

import kseq
from kseq import layers

B, T, S, D, M, U = 2, 5, 7, 3, 6, 4


@dataclass(frozen=True)
class LayerCase:
    """How to make and call one layer.

    Attributes:
        make: the layer, of a dropout rate and of `dtype` or `name`.
        shapes: tree of the shapes of the positional call arguments.
        masks: which argument masks which input: position -> name.
        options: further call arguments.
        dropout: whether the rate does something.
        causal: whether the first output at step t depends on inputs up to t only.
        ids: how many token ids there are, where the inputs are ids.
        bias: whether it maps distances, ids of both signs, to an attention bias:
            heads first, at least float32.
        constant: whether the outputs depend on the shape of the inputs only.
    """

    make: Callable[..., keras.Layer]
    shapes: list[Any]
    masks: dict[int, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    dropout: bool = False
    causal: bool = False
    ids: int = 0
    bias: bool = False
    constant: bool = False

    def inputs(self, seed: int = 0) -> list[Any]:
        """Normal values or ids, in the structure of `shapes`."""
        rng = np.random.default_rng(seed)

        def draw(shape: tuple) -> np.ndarray:
            if self.ids:
                lowest = 1 - self.ids if self.bias else 0
                return rng.integers(lowest, self.ids, shape).astype("int32")
            return rng.normal(size=shape).astype("float32")

        return _map_shapes(draw, self.shapes)

    def mask_arrays(self) -> dict[str, np.ndarray]:
        """Left, right and interior padding, and never a row without a token."""
        masks = {}
        for position, name in self.masks.items():
            mask = np.ones(self.shapes[position][:2], bool)
            mask[0, -2:] = mask[1, 0] = mask[1, 2] = False
            masks[name] = mask
        return masks

    def symbolic(self, *, static: bool) -> list[Any]:
        """Keras inputs; not static: batch and time are None."""

        def make(shape: tuple) -> Any:
            if not static:
                known = () if self.ids else shape[-1:]
                shape = (None,) * (len(shape) - len(known)) + known
            dtype = "int32" if self.ids else "float32"
            return keras.Input(batch_shape=shape, dtype=dtype)

        return _map_shapes(make, self.shapes)

    def output_dtype(self, compute_dtype: str) -> str:
        """The dtype of the first output under a policy of half precision."""
        return "float32" if self.bias else compute_dtype

    def built(self, rate: float = 0.0, seed: int | None = 0, **options: Any) -> Any:
        """The layer with normal weights of `seed`, biases too."""
        layer = self.make(rate, **options)
        layer(*self.symbolic(static=True), **self.options)
        if seed is not None:
            rng = np.random.default_rng(seed)
            layer.set_weights([rng.normal(0, 0.5, w.shape) for w in layer.weights])
        return layer


def _map_shapes(function: Callable[[tuple], Any], shapes: Any) -> Any:
    if isinstance(shapes, tuple):
        return function(shapes)
    return [_map_shapes(function, shape) for shape in shapes]


def _cell(cell_class: type, *states: int, **options: Any) -> LayerCase:
    return LayerCase(
        lambda rate, **kwargs: cell_class(
            U, dropout=rate, recurrent_dropout=rate, seed=1, **options, **kwargs
        ),
        [(B, D), [(B, width) for width in states]],
        dropout=True,
    )


def _recurrent(layer_class: type, **options: Any) -> LayerCase:
    return LayerCase(
        lambda rate, **kwargs: layer_class(
            U,
            dropout=rate,
            recurrent_dropout=rate,
            seed=1,
            return_sequences=True,
            return_state=True,
            **options,
            **kwargs,
        ),
        [(B, T, D)],
        masks={0: "mask"},
        dropout=True,
        causal=True,
    )


def _linear(layer_class: type, width: int, **options: Any) -> LayerCase:
    return LayerCase(
        lambda rate, **kwargs: layer_class(
            U,
            dropout=rate,
            seed=1,
            return_sequences=True,
            return_state=True,
            **options,
            **kwargs,
        ),
        [(B, T, width)],
        masks={0: "mask"},
        dropout=True,
        causal=True,
    )


def _linear_cell(cell_class: type, width: int, **options: Any) -> LayerCase:
    return LayerCase(
        lambda rate, **kwargs: cell_class(U, dropout=rate, seed=1, **options, **kwargs),
        [(B, width), [(B, U)]],
        dropout=True,
    )


def _stack(rate: float, dtype: Any = None, **kwargs: Any) -> keras.Layer:
    cells = [
        layers.LSTMCell(U, dropout=rate, seed=1, dtype=dtype),
        layers.GRUCell(
            2, recurrent_dropout=rate, reset_after=False, seed=2, dtype=dtype
        ),
    ]
    stack = keras.layers.StackedRNNCells(cells, dtype=dtype)
    return layers.RNN(stack, return_sequences=True, dtype=dtype, **kwargs)


def _zoneout_cell(rate: float, dtype: Any = None, **kwargs: Any) -> keras.Layer:
    cell = layers.LSTMCell(U, dropout=rate, seed=1, dtype=dtype)
    # zoneout at inference depends on its rate, which no dropout does
    return layers.ZoneoutCell(cell, 0.0, dtype=dtype, **kwargs)


def _residual_cell(rate: float, dtype: Any = None, **kwargs: Any) -> keras.Layer:
    cell = layers.GRUCell(U, dropout=rate, seed=1, dtype=dtype)
    return layers.ResidualCell(cell, dtype=dtype, **kwargs)


def _residual(rate: float, dtype: Any = None, **kwargs: Any) -> keras.Layer:
    layer = layers.LSTM(
        D, return_sequences=True, return_state=True, dropout=rate, seed=1, dtype=dtype
    )
    return layers.Residual(layer, dtype=dtype, **kwargs)


def _attention(make: Callable[..., keras.Layer]) -> LayerCase:
    return LayerCase(
        lambda rate, **kwargs: make(**kwargs),
        [(B, T, U), (B, S, M)],
        masks={0: "query_mask", 1: "value_mask"},
        options={"return_attention_scores": True},
        causal=True,
    )


def _attention_cell(rate: float, dtype: Any = None, **kwargs: Any) -> keras.Layer:
    return layers.AttentionCell(
        layers.GRUCell(U, dropout=rate, recurrent_dropout=rate, seed=1, dtype=dtype),
        layers.BahdanauAttention(3, normalize=True, dtype=dtype),
        dtype=dtype,
        **kwargs,
    )


def _attention_rnn(rate: float, dtype: Any = None, **kwargs: Any) -> keras.Layer:
    cell = _attention_cell(rate, dtype)
    return layers.AttentionRNN(cell, return_state=True, dtype=dtype, **kwargs)


def _block_parts(rate: float, dtype: Any) -> list[keras.Layer]:
    return [
        layers.MultiHeadAttention(
            2, 3, query_key_norm=True, dropout=rate, seed=1, dtype=dtype
        ),
        layers.FeedForward(5, activation="swiglu", dropout=rate, seed=2, dtype=dtype),
    ]


def _encoder_block(rate: float, dtype: Any = None, **kwargs: Any) -> keras.Layer:
    return layers.TransformerEncoderBlock(
        *_block_parts(rate, dtype),
        placement="sandwich",
        layer_scale=0.5,
        dropout=rate,
        stochastic_depth=rate,
        seed=3,
        dtype=dtype,
        **kwargs,
    )


def _decoder_block(rate: float, dtype: Any = None, **kwargs: Any) -> keras.Layer:
    return layers.TransformerDecoderBlock(
        *_block_parts(rate, dtype),
        cross_attention=layers.MultiHeadAttention(2, 3, use_bias=False, dtype=dtype),
        norm="rms",
        layer_scale=0.5,
        dropout=rate,
        remat=True,
        seed=3,
        dtype=dtype,
        **kwargs,
    )


LAYER_CASES: dict[type, LayerCase] = {
    layers.AlibiBias: LayerCase(
        lambda rate, **kwargs: layers.AlibiBias(3, **kwargs),
        [(T, S)],
        ids=11,
        bias=True,
    ),
    layers.AttentionCell: LayerCase(
        _attention_cell,
        [(B, D), [(B, U)], (B, S, M)],
        masks={2: "memory_mask"},
        dropout=True,
    ),
    layers.AttentionRNN: LayerCase(
        _attention_rnn,
        [(B, T, D), (B, S, M)],
        masks={0: "sequences_mask", 1: "memory_mask"},
        options={"return_attention_scores": True},
        dropout=True,
        causal=True,
    ),
    layers.BahdanauAttention: _attention(
        lambda **kw: layers.BahdanauAttention(3, **kw)
    ),
    layers.CoverageAttention: _attention(
        lambda **kw: layers.CoverageAttention(3, **kw)
    ),
    layers.Dropout: LayerCase(
        lambda rate, **kwargs: layers.Dropout(rate, seed=1, **kwargs),
        [(B, T, D)],
        dropout=True,
        causal=True,
    ),
    layers.Embedding: LayerCase(
        lambda rate, **kwargs: layers.Embedding(11, U, **kwargs), [(B, T)], ids=11
    ),
    layers.FeedForward: LayerCase(
        lambda rate, **kwargs: layers.FeedForward(
            5, activation="geglu", dropout=rate, seed=1, **kwargs
        ),
        [(B, T, D)],
        masks={0: "mask"},
        dropout=True,
        causal=True,
    ),
    layers.GRU: _recurrent(layers.GRU),
    layers.GRUCell: _cell(layers.GRUCell, U),
    layers.LSTM: _recurrent(layers.LSTM),
    layers.LSTMCell: _cell(layers.LSTMCell, U, U),
    layers.LayerNormGRU: _recurrent(layers.LayerNormGRU),
    layers.LayerNormGRUCell: _cell(layers.LayerNormGRUCell, U),
    layers.LayerNormLSTM: _recurrent(layers.LayerNormLSTM),
    layers.LayerNormLSTMCell: _cell(layers.LayerNormLSTMCell, U, U),
    layers.LinearAttention: LayerCase(
        lambda rate, **kwargs: layers.LinearAttention(
            4, 3, value_dim=2, num_key_value_heads=2, **kwargs
        ),
        [(B, T, U), (B, T, M)],
        masks={0: "query_mask", 1: "value_mask"},
        options={"use_causal_mask": True},
        causal=True,
    ),
    layers.LocalAttention: _attention(lambda **kw: layers.LocalAttention(2, **kw)),
    layers.LocationSensitiveAttention: _attention(
        lambda **kw: layers.LocationSensitiveAttention(
            3, filters=2, kernel_size=3, cumulative=True, **kw
        )
    ),
    layers.LuongAttention: _attention(
        lambda **kw: layers.LuongAttention(scaled=True, **kw)
    ),
    layers.MinGRU: _linear(layers.MinGRU, D),
    layers.MinGRUCell: _linear_cell(layers.MinGRUCell, D),
    layers.MonotonicAttention: LayerCase(
        lambda rate, **kwargs: layers.MonotonicAttention(
            3, noise=rate, seed=1, **kwargs
        ),
        [(B, T, U), (B, S, M)],
        masks={0: "query_mask", 1: "value_mask"},
        options={"return_attention_scores": True},
        dropout=True,
        causal=True,
    ),
    layers.MultiHeadAttention: LayerCase(
        lambda rate, **kwargs: layers.MultiHeadAttention(
            4,
            2,
            3,
            num_key_value_heads=2,
            dropout=rate,
            rotary=layers.RotaryEmbedding(),
            bias=layers.AlibiBias(4),
            sinks=True,
            query_key_norm=True,
            seed=1,
            **kwargs,
        ),
        [(B, T, U), (B, S, M)],
        masks={0: "query_mask", 1: "value_mask"},
        options={"return_attention_scores": True},
        dropout=True,
        causal=True,
    ),
    layers.PeepholeLSTM: _recurrent(layers.PeepholeLSTM),
    layers.PeepholeLSTMCell: _cell(layers.PeepholeLSTMCell, U, U),
    layers.PositionEmbedding: LayerCase(
        lambda rate, **kwargs: layers.PositionEmbedding(
            3, interpolated_length=11, **kwargs
        ),
        [(B, T, U)],
        constant=True,
    ),
    layers.ProjectedLSTM: _recurrent(layers.ProjectedLSTM, proj_units=3),
    layers.ProjectedLSTMCell: _cell(layers.ProjectedLSTMCell, 3, U, proj_units=3),
    layers.Residual: LayerCase(
        _residual, [(B, T, D)], masks={0: "mask"}, dropout=True, causal=True
    ),
    layers.ResidualCell: LayerCase(_residual_cell, [(B, U), [(B, U)]], dropout=True),
    layers.RNN: LayerCase(
        _stack, [(B, T, D)], masks={0: "mask"}, dropout=True, causal=True
    ),
    layers.RGLRU: _linear(layers.RGLRU, U, num_heads=2),
    layers.RGLRUCell: _linear_cell(layers.RGLRUCell, U, num_heads=2),
    layers.RMSNormalization: LayerCase(
        lambda rate, **kwargs: layers.RMSNormalization(epsilon=1e-3, **kwargs),
        [(B, T, U)],
        causal=True,
    ),
    layers.RotaryEmbedding: LayerCase(
        lambda rate, **kwargs: layers.RotaryEmbedding(
            rotary_dim=4, scaling=kseq.ops.YaRNScaling(2, 64), **kwargs
        ),
        [(B, T, 3, M)],
        causal=True,
    ),
    layers.SequencePooling: LayerCase(
        lambda rate, **kwargs: layers.SequencePooling("last", **kwargs),
        [(B, T, U)],
        masks={0: "mask"},
    ),
    layers.SimpleRNN: _recurrent(layers.SimpleRNN),
    layers.SimpleRNNCell: _cell(layers.SimpleRNNCell, U),
    layers.SinePositionEncoding: LayerCase(
        lambda rate, **kwargs: layers.SinePositionEncoding(**kwargs),
        [(B, T, U)],
        constant=True,
    ),
    layers.SublayerConnection: LayerCase(
        lambda rate, **kwargs: layers.SublayerConnection(
            layer_scale=0.5, dropout=rate, stochastic_depth=rate / 4, seed=1, **kwargs
        ),
        [(B, T, D)],
        options={"sublayer": ops.tanh},
        dropout=True,
        causal=True,
    ),
    layers.T5RelativeBias: LayerCase(
        lambda rate, **kwargs: layers.T5RelativeBias(
            3, num_buckets=8, max_distance=7, **kwargs
        ),
        [(T, S)],
        ids=11,
        bias=True,
    ),
    layers.TransformerDecoderBlock: LayerCase(
        _decoder_block,
        [(B, T, M), (B, S, U)],
        masks={0: "mask", 1: "memory_mask"},
        dropout=True,
        causal=True,
    ),
    layers.TransformerEncoderBlock: LayerCase(
        _encoder_block, [(B, T, M)], masks={0: "mask"}, dropout=True
    ),
    layers.ZoneoutCell: LayerCase(
        _zoneout_cell, [(B, D), [(B, U), (B, U)]], dropout=True
    ),
}


def exported_layers() -> list[type]:
    """Every layer class that `kseq.layers` exports."""
    found = [getattr(kseq.layers, name) for name in kseq.layers.__all__]
    return [c for c in found if isinstance(c, type) and issubclass(c, keras.Layer)]


def cases(**wanted: Any) -> pytest.MarkDecorator:
    """Parametrizes `case` over the cases whose attributes are `wanted`."""
    chosen = [
        pytest.param(case, id=layer.__name__)
        for layer, case in LAYER_CASES.items()
        if all(bool(getattr(case, key)) == value for key, value in wanted.items())
    ]
    return pytest.mark.parametrize("case", chosen)
