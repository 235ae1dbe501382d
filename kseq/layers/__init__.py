"""Keras layers for sequence models."""

from kseq.layers.attention.attention_cell import AttentionCell
from kseq.layers.attention.attention_rnn import AttentionRNN
from kseq.layers.attention.bahdanau_attention import BahdanauAttention
from kseq.layers.attention.luong_attention import LuongAttention
from kseq.layers.dropout import Dropout
from kseq.layers.embedding import Embedding
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

__all__ = [
    "GRU",
    "LSTM",
    "RGLRU",
    "RNN",
    "AttentionCell",
    "AttentionRNN",
    "BahdanauAttention",
    "Dropout",
    "Embedding",
    "GRUCell",
    "LSTMCell",
    "LayerNormGRU",
    "LayerNormGRUCell",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "LuongAttention",
    "MinGRU",
    "MinGRUCell",
    "PeepholeLSTM",
    "PeepholeLSTMCell",
    "ProjectedLSTM",
    "ProjectedLSTMCell",
    "RGLRUCell",
    "Residual",
    "ResidualCell",
    "SimpleRNN",
    "SimpleRNNCell",
    "ZoneoutCell",
]
