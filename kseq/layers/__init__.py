"""Keras layers for sequence models."""

from kseq.layers.attention.attention_cell import AttentionCell
from kseq.layers.attention.attention_rnn import AttentionRNN
from kseq.layers.attention.bahdanau_attention import BahdanauAttention
from kseq.layers.attention.luong_attention import LuongAttention
from kseq.layers.dropout import Dropout
from kseq.layers.embedding import Embedding
from kseq.layers.recurrent.gru import GRU
from kseq.layers.recurrent.gru_cell import GRUCell
from kseq.layers.recurrent.lstm import LSTM
from kseq.layers.recurrent.lstm_cell import LSTMCell
from kseq.layers.recurrent.rnn import RNN
from kseq.layers.recurrent.simple_rnn import SimpleRNN
from kseq.layers.recurrent.simple_rnn_cell import SimpleRNNCell

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "AttentionCell",
    "AttentionRNN",
    "BahdanauAttention",
    "Dropout",
    "Embedding",
    "GRUCell",
    "LSTMCell",
    "LuongAttention",
    "SimpleRNN",
    "SimpleRNNCell",
]
