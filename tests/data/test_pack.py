"""Packed rows: by hand, against bins of all kinds, and in attention."""

import numpy as np
import pytest
from helpers import DTYPES, assert_close, gradients, set_weights_by_seed
from keras import ops
from reference.differences import numeric_gradients
from reference.dot_product_attention import dot_product_attention
from reference.positions import plain, rotated

from kseq.data import pack
from kseq.layers import MultiHeadAttention, RotaryEmbedding
from kseq.ops import segment_mask


def test_rows_by_hand():
    # longest first: 4 into a new row, 3 too, 2 behind 4, 1 behind 3
    rows = pack([[5, 6, 7], [8], [9, 5, 4, 3], [], [4, 6]], length=6)
    assert rows.token_ids.tolist() == [[5, 6, 7, 8, 0, 0], [9, 5, 4, 3, 4, 6]]
    assert rows.target_ids.tolist() == [[6, 7, 0, 0, 0, 0], [5, 4, 3, 0, 6, 0]]
    assert rows.segment_ids.tolist() == [[1, 1, 1, 2, 0, 0], [1, 1, 1, 1, 2, 2]]
    assert rows.positions.tolist() == [[0, 1, 2, 0, 0, 0], [0, 1, 2, 3, 0, 1]]
    assert all(array.dtype == "int32" for array in rows)
    assert str(rows) == "4 segments in 2 rows of 6 tokens, 16.7% padding."


def test_one_of_each_is_singular():
    assert str(pack([[5]], length=1)) == "1 segment in 1 row of 1 token, 0.0% padding."


def test_a_long_document_is_split():
    rows = pack([[3, 4, 5, 6, 7, 8, 9], [5]], length=3)
    assert rows.token_ids.tolist() == [[3, 4, 5], [6, 7, 8], [9, 5, 0]]
    # 6 and 9 are of the same document, 5 is not
    assert rows.target_ids.tolist() == [[4, 5, 6], [7, 8, 9], [0, 0, 0]]
    assert rows.segment_ids.tolist() == [[1, 1, 1], [1, 1, 1], [1, 2, 0]]
    assert rows.positions.tolist() == [[0, 1, 2], [0, 1, 2], [0, 0, 0]]


def test_a_segment_goes_into_the_fullest_row_that_holds_it():
    # rows of 7 and 6 of 10 stand when 3 comes: it fits both
    rows = pack([[3] * 6, [4] * 7, [5] * 3], length=10)
    assert [set(row) - {0} for row in rows.token_ids.tolist()] == [{3}, {4, 5}]


def read(rows):
    """The segments of all rows, each by itself, as (tokens, targets)."""
    found = []
    for tokens, targets, segments, positions in zip(*(a.tolist() for a in rows)):
        count = max(segments)
        assert sorted(set(segments) - {0}) == list(range(1, count + 1))
        for number in range(1, count + 1):
            here = [i for i, segment in enumerate(segments) if segment == number]
            assert here == list(range(here[0], here[-1] + 1))
            assert [positions[i] for i in here] == list(range(len(here)))
            found.append(([tokens[i] for i in here], [targets[i] for i in here]))
        empty = [i for i, segment in enumerate(segments) if not segment]
        assert empty == list(range(len(segments) - len(empty), len(segments)))
        assert not any(tokens[i] or targets[i] or positions[i] for i in empty)
    return found


@pytest.mark.parametrize("length", [1, 2, 13, 64])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_token_is_there_once(seed, length):
    generator = np.random.default_rng(seed)
    sizes = generator.geometric(0.1, 101)
    ends = np.cumsum(sizes)
    documents = [list(range(3 + e - n, 3 + e)) for e, n in zip(ends, sizes)]
    last = {document[-1] for document in documents}
    rows = pack(documents, length)
    segments = read(rows)
    tokens = [token for segment, _ in segments for token in segment]
    assert sorted(tokens) == list(range(3, 3 + ends[-1]))
    for segment, targets in segments:
        assert targets == [0 if t in last else t + 1 for t in segment]
        assert len(segment) <= length
    # no two rows could be one
    used = np.sort((rows.segment_ids > 0).sum(axis=1))
    assert len(used) < 2 or used[0] + used[1] > length
    bins = -(-len(tokens) // length)
    assert len(used) <= 11 / 9 * max(bins, (np.array(sizes) > length / 2).sum()) + 4
    again = pack(documents, length)
    assert all((a == b).all() for a, b in zip(rows, again))


@pytest.mark.parametrize("documents", [[], [[], []]])
def test_documents_without_tokens_are_refused(documents):
    with pytest.raises(ValueError, match="`documents` must have at least one token"):
        pack(documents, length=3)


def test_rows_must_have_a_length():
    with pytest.raises(ValueError, match="`length` must be a positive integer"):
        pack([[3]], length=0)


D, H, K = 3, 2, 4


def alone(x, *weights):
    """Causal attention over one document `(T, D)`, in float64."""
    places = np.arange(len(x))[None]
    query, key, value = (
        (np.einsum("td,dhk->thk", x, kernel) + bias)[None]
        for kernel, bias in zip(weights[:6:2], weights[1:6:2])
    )
    query, key = (rotated(y, places, plain(K, 1e4)) for y in (query, key))
    y, _ = dot_product_attention(query, key, value, use_causal_mask=True)
    return np.einsum("thv,hvd->td", y[0], weights[6]) + weights[7]


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_over_packed_rows_is_that_of_each_document_alone(dtype):
    """Values, and the gradients of inputs and weights."""
    layer = MultiHeadAttention(H, K, rotary=RotaryEmbedding(dtype=dtype), dtype=dtype)
    layer.build((None, None, D), (None, None, D))
    weights = set_weights_by_seed(layer, seed=3)
    names = [w.path.split("/")[-2] for w in layer.weights[::2]]
    assert names == ["query_dense", "key_dense", "value_dense", "output_dense"]
    documents = [[3, 4], [5, 6, 7], [8]]
    rows = pack(documents, length=4)
    assert rows.segment_ids.tolist() == [[1, 1, 0, 0], [1, 1, 1, 2]]
    table, cotangents = np.random.default_rng(7).normal(size=(2, 13, D))
    cotangents[0] = 0  # padding

    def attend(x):
        return layer(
            x,
            x,
            attention_mask=segment_mask(rows.segment_ids),
            use_causal_mask=True,
            positions=rows.positions,
        )

    y, (dx,), dw = gradients(
        attend,
        [table[rows.token_ids].astype(dtype)],
        layer.trainable_variables,
        mode="compiled",
        loss=lambda y: ops.sum(y * ops.cast(cotangents[rows.token_ids], dtype)),
    )
    wanted = [np.zeros(w.shape) for w in weights]
    for document in documents:
        row, step = np.transpose(
            [np.argwhere(rows.token_ids == token)[0] for token in document]
        )
        x = table[document]
        assert_close(f"y {document}", y[row, step], alone(x, *weights), dtype)

        def total(*arrays, wanted=cotangents[document]):
            return (alone(*arrays) * wanted).sum()

        dx_alone, *dw_alone = numeric_gradients(total, [x, *weights])
        assert_close(f"dx {document}", dx[row, step], dx_alone, dtype, gradient=True)
        wanted = [a + b for a, b in zip(wanted, dw_alone)]
    assert_close("dw", dw, wanted, dtype, gradient=True)
