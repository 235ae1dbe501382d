"""Batches of sequences: labels of both kinds, weights, errors, programs of XLA."""

import collections
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from helpers import on_jax, on_tensorflow

from kseq.data import BucketedPairs, bucket_by_length, pack

SEQUENCES = [[3, 4], [5], [6, 7, 8, 9, 3], [4, 5, 6], [7]]


def in_order(labels=None, **options):
    return bucket_by_length(SEQUENCES, labels, shuffle=False, **options)


def as_lists(batch):
    return [array.tolist() for array in batch]


def test_without_labels_by_hand():
    batches = in_order(batch_size=2, boundaries=[2, 6])
    assert batches.shapes == [(2, 2), (2, 6)]
    # 2 6 2, were the second not to differ in length from the first
    assert [batches.rows(i) for i in range(3)] == [[0, 1], [2, 4], [3]]
    assert [as_lists(batch) for batch in batches] == [
        [[[3, 4], [5, 0]]],
        [[[6, 7, 8, 9, 3, 0], [7, 0, 0, 0, 0, 0]]],
        [[[4, 5, 6, 0, 0, 0], [0] * 6]],
    ]
    assert all(ids.dtype == "int32" for (ids,) in batches)
    assert str(batches) == (
        "5 sequences in 3 batches of 2 rows, padded to 2 or 6 tokens: XLA makes 2 "
        "programs."
    )


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        ([3, 1, 4, 1, 5], "int32"),
        ([True, False, True, True, False], "int32"),
        (np.array([0.5, 1.5, 2.5, 3.5, 4.5]), "float32"),
    ],
)
def test_a_label_for_each_sequence(labels, dtype):
    batches = in_order(labels, batch_size=4, boundaries=[5])
    assert batches.rows(1) == [4]
    for index, (_, got, weights) in enumerate(batches):
        spare = 4 - len(batches.rows(index))
        want = [labels[i] for i in batches.rows(index)]
        assert got.tolist() == want + [0] * spare
        assert weights.tolist() == [1] * len(want) + [0] * spare
        assert (got.dtype, weights.dtype) == (dtype, "float32")


def test_a_label_for_each_token():
    labels = [[10 * token for token in ids] for ids in SEQUENCES]
    batches = in_order(labels, batch_size=2)
    for ids, got in batches:
        np.testing.assert_array_equal(got, 10 * ids)
        assert got.dtype == "int32"


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_sequence_keeps_its_label(seed, shuffle):
    generator = np.random.default_rng(seed)
    sequences = [[i + 1] * n for i, n in enumerate(generator.integers(1, 17, 101))]
    batches = bucket_by_length(
        sequences, range(1, 102), batch_size=7, shuffle=shuffle, seed=seed
    )
    orders = []
    for _ in range(2):
        found = []
        for ids, labels, weights in batches:
            np.testing.assert_array_equal(ids.max(axis=1), labels)
            np.testing.assert_array_equal(weights, labels > 0)
            found += [label for label in labels.tolist() if label]
        assert sorted(found) == list(range(1, 102))
        orders.append(found)
        batches.on_epoch_end()
    assert (orders[0] != orders[1]) == shuffle


def test_one_batch():
    assert str(bucket_by_length([[3]], batch_size=1)) == (
        "1 sequence in 1 batch of 1 row, padded to 1 tokens: XLA makes 1 program."
    )


@pytest.mark.parametrize(
    ("sequences", "without"), [([], r"\[\]"), ([[3], [], [4]], r"\[1\]")]
)
def test_sequences_without_tokens_are_refused(sequences, without):
    with pytest.raises(ValueError, match=f"at least one token.*tokens={without}"):
        bucket_by_length(sequences, batch_size=2)


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [
        ([1, 0, 1, 0], r"labels=4, sequences=5, wrong=\[\]"),
        ([[1, 2], [1], [1, 2, 3, 4], [1, 2, 3], 5], r"wrong=\[2, 4\]"),
    ],
)
def test_labels_must_fit(labels, wrong):
    with pytest.raises(ValueError, match=f"a sequence of its length.*{wrong}"):
        in_order(labels, batch_size=2)


def test_the_longest_sequence_must_fit():
    with pytest.raises(ValueError, match=r"longest sequence.*Add 5 to `boundaries`"):
        in_order(batch_size=2, boundaries=[4])


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ([5, 0], ValueError, r"ids of `\w+` must be at least 1.*smallest=0"),
        ([-1, 2], ValueError, "smallest=-1"),
        ([2**31, 2], ValueError, "largest=2147483648"),
        ([1.5, 2], TypeError, r"`\w+` must hold integer ids.*float64"),
        ("ab", TypeError, "must hold integer ids"),
    ],
    ids=str,
)
def test_ids_are_checked(ids, error, words):
    """Here and where else rows are made of them."""
    for make in (
        lambda ids: bucket_by_length([[3], ids], batch_size=2),
        lambda ids: pack([[3], ids], length=4),
        lambda ids: BucketedPairs([ids], [[3]], batch_size=1),
        lambda ids: BucketedPairs([[3]], [ids], batch_size=1),
    ):
        with pytest.raises(error, match=words):
            make(ids)


@pytest.mark.parametrize("name", ["batch_size", "num_buckets"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer"):
        in_order(**{"batch_size": 2, name: 0})


class Model(keras.Model):
    """Notes the shape of each trace."""

    def __init__(self):
        super().__init__()
        self.traces = []
        self.embedding = keras.layers.Embedding(13, 2)
        self.dense = keras.layers.Dense(1)

    def call(self, ids):
        self.traces.append(tuple(ids.shape))
        return self.dense(keras.ops.mean(self.embedding(ids), axis=1))


def fit_six_lengths():
    sequences = [[3] * n for n in (2, 3, 5, 7, 9, 11) for _ in range(4)]
    batches = bucket_by_length(sequences, range(24), batch_size=4, num_buckets=3)
    model = Model()
    model.compile("sgd", "mse", jit_compile=True)
    model.fit(batches, epochs=2, verbose=0)
    return batches, model


@on_jax
def test_as_many_traces_as_buckets():
    batches, model = fit_six_lengths()
    traces = collections.Counter(model.traces)
    assert sorted(traces) == batches.shapes
    assert str(batches).endswith("padded to 3 or 7 or 11 tokens: XLA makes 3 programs.")
    # Keras builds the model with the first batch, outside of the program
    assert sorted(traces.values())[:-1] == [1, 1]
    count = len(model.traces)
    model.fit(batches, verbose=0)
    assert len(model.traces) == count


@pytest.mark.slow
@on_tensorflow
def test_as_many_programs_as_buckets(tmp_path):
    """TensorFlow traces once for all lengths; XLA writes down what it compiles."""
    subprocess.run(
        [sys.executable, __file__],
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XLA_FLAGS": f"--xla_dump_to={tmp_path}",
        },
        check=True,
    )
    programs = [
        file
        for file in tmp_path.glob("*one_step_on_data*")
        if file.name.endswith(".before_optimizations.txt")
    ]
    assert len(programs) == 3


if __name__ == "__main__":
    fit_six_lengths()
