"""Keras layers for sequence models."""

from kseq.layers.attention.attention_cell import AttentionCell
from kseq.layers.attention.attention_rnn import AttentionRNN
from kseq.layers.attention.bahdanau_attention import BahdanauAttention
from kseq.layers.attention.coverage_attention import CoverageAttention
from kseq.layers.attention.linear_attention import LinearAttention
from kseq.layers.attention.local_attention import LocalAttention
from kseq.layers.attention.location_sensitive_attention import (
    LocationSensitiveAttention,
)
from kseq.layers.attention.luong_attention import LuongAttention
from kseq.layers.attention.monotonic_attention import MonotonicAttention
from kseq.layers.attention.multi_head_attention import MultiHeadAttention
from kseq.layers.blocks.feed_forward import FeedForward
from kseq.layers.blocks.sublayer_connection import SublayerConnection
from kseq.layers.blocks.transformer_decoder_block import TransformerDecoderBlock
from kseq.layers.blocks.transformer_encoder_block import TransformerEncoderBlock
from kseq.layers.dropout import Dropout
from kseq.layers.embedding import Embedding
from kseq.layers.positions.alibi_bias import AlibiBias
from kseq.layers.positions.position_embedding import PositionEmbedding
from kseq.layers.positions.rotary_embedding import RotaryEmbedding
from kseq.layers.positions.sine_position_encoding import SinePositionEncoding
from kseq.layers.positions.t5_relative_bias import T5RelativeBias
from kseq.layers.recurrent.gru import GRU
from kseq.layers.recurrent.gru_cell import GRUCell
from kseq.layers.recurrent.layer_norm_gru import LayerNormGRU
from kseq.layers.recurrent.layer_norm_gru_cell import LayerNormGRUCell
from kseq.layers.recurrent.layer_norm_lstm import LayerNormLSTM
from kseq.layers.recurrent.layer_norm_lstm_cell import LayerNormLSTMCell
from kseq.layers.recurrent.lstm import LSTM
from kseq.layers.recurrent.lstm_cell import LSTMCell
from kseq.layers.recurrent.min_gru import MinGRU
from kseq.layers.recurrent.min_gru_cell import MinGRUCell
from kseq.layers.recurrent.peephole_lstm import PeepholeLSTM
from kseq.layers.recurrent.peephole_lstm_cell import PeepholeLSTMCell
from kseq.layers.recurrent.projected_lstm import ProjectedLSTM
from kseq.layers.recurrent.projected_lstm_cell import ProjectedLSTMCell
from kseq.layers.recurrent.residual_cell import ResidualCell
from kseq.layers.recurrent.rglru import RGLRU
from kseq.layers.recurrent.rglru_cell import RGLRUCell
from kseq.layers.recurrent.rnn import RNN
from kseq.layers.recurrent.simple_rnn import SimpleRNN
from kseq.layers.recurrent.simple_rnn_cell import SimpleRNNCell
from kseq.layers.recurrent.zoneout_cell import ZoneoutCell
from kseq.layers.residual import Residual
from kseq.layers.rms_normalization import RMSNormalization
from kseq.layers.sequence_pooling import SequencePooling

__all__ = [
    "GRU",
    "LSTM",
    "RGLRU",
    "RNN",
    "AlibiBias",
    "AttentionCell",
    "AttentionRNN",
    "BahdanauAttention",
    "CoverageAttention",
    "Dropout",
    "Embedding",
    "FeedForward",
    "GRUCell",
    "LSTMCell",
    "LayerNormGRU",
    "LayerNormGRUCell",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "LinearAttention",
    "LocalAttention",
    "LocationSensitiveAttention",
    "LuongAttention",
    "MinGRU",
    "MinGRUCell",
    "MonotonicAttention",
    "MultiHeadAttention",
    "PeepholeLSTM",
    "PeepholeLSTMCell",
    "PositionEmbedding",
    "ProjectedLSTM",
    "ProjectedLSTMCell",
    "RGLRUCell",
    "RMSNormalization",
    "Residual",
    "ResidualCell",
    "RotaryEmbedding",
    "SequencePooling",
    "SimpleRNN",
    "SimpleRNNCell",
    "SinePositionEncoding",
    "SublayerConnection",
    "T5RelativeBias",
    "TransformerDecoderBlock",
    "TransformerEncoderBlock",
    "ZoneoutCell",
]
