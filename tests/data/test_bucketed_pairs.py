"""Batches of pairs: contents, shapes, order, and that Keras takes them."""

import itertools

import keras
import numpy as np
import pytest

from kseq.data import BucketedPairs
from kseq.data.bucketed_batches import tightest_boundaries

# places each pair needs: 3 3 5 5 5 8
SOURCES = [[3], [3, 4], [3, 4, 5], [3, 4, 5, 6], [5], [3, 4]]
TARGETS = [[7, 8], [7], [7, 8, 9, 10], [7], [7, 8, 9, 10], [7] * 7]


def read_pairs(batch):
    """The pairs of a batch as tuples, undone by other means than they were made."""
    inputs, labels = batch
    pairs = []
    for source, target, label in zip(
        inputs["source_ids"].tolist(), inputs["target_ids"].tolist(), labels.tolist()
    ):
        if not any(source + target + label):
            continue
        assert target[0] == 1
        end = label.index(2)
        assert target[1 : end + 1] == label[:end]
        assert not any(target[end + 1 :] + label[end + 1 :])
        stop = source.index(2)
        assert not any(source[stop + 1 :])
        pairs.append((tuple(source[:stop]), tuple(label[:end])))
    return pairs


def random_pairs(seed, count=101, longest=17):
    generator = np.random.default_rng(seed)
    sides = [
        [generator.integers(3, 13, generator.integers(1, longest)).tolist()
         for _ in range(count)]
        for _ in range(2)
    ]  # fmt: skip
    return sides


def test_batch_by_hand():
    pairs = BucketedPairs(
        [[5, 6], [7]], [[8], [9, 8, 9]], batch_size=3, boundaries=[5], shuffle=False
    )
    inputs, labels = pairs[0]
    np.testing.assert_array_equal(
        inputs["source_ids"], [[5, 6, 2, 0, 0], [7, 2, 0, 0, 0], [0] * 5]
    )
    np.testing.assert_array_equal(
        inputs["target_ids"], [[1, 8, 0, 0, 0], [1, 9, 8, 9, 0], [0] * 5]
    )
    np.testing.assert_array_equal(labels, [[8, 2, 0, 0, 0], [9, 8, 9, 2, 0], [0] * 5])
    for array in (*inputs.values(), labels):
        assert array.dtype == "int32"
    assert pairs.rows(0) == [0, 1]


def test_what_a_bucket_leaves_over_joins_the_next():
    pairs = BucketedPairs(
        SOURCES, TARGETS, batch_size=2, boundaries=[3, 5, 8], shuffle=False
    )
    shapes = [labels.shape for _, labels in pairs]
    assert shapes == [(2, 3), (2, 5), (2, 8)]
    assert [pairs.rows(i) for i in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert pairs.shapes == [(2, 3), (2, 5), (2, 8)]
    assert str(pairs) == (
        "6 pairs in 3 batches of 2 rows, padded to 3 or 5 or 8 tokens: XLA makes 3 "
        "programs."
    )


def test_shapes_leave_out_lengths_without_a_batch():
    pairs = BucketedPairs(SOURCES, TARGETS, batch_size=5, boundaries=[3, 4, 5, 9])
    assert pairs.shapes == [(5, 5), (5, 9)]
    assert len(pairs) == 2


@pytest.mark.parametrize("batch_size", [1, 2, 7, 101, 128])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_pair_is_in_one_batch_of_each_epoch(seed, shuffle, batch_size):
    sources, targets = random_pairs(seed)
    want = sorted((tuple(s), tuple(t)) for s, t in zip(sources, targets))
    pairs = BucketedPairs(
        sources, targets, batch_size=batch_size, shuffle=shuffle, seed=seed
    )
    for _ in range(2):
        batches = list(pairs)
        assert len(batches) == len(pairs) == -(-101 // batch_size)
        assert {labels.shape for _, labels in batches} == set(pairs.shapes)
        assert all(labels.shape[0] == batch_size for _, labels in batches)
        assert sorted(itertools.chain(*map(read_pairs, batches))) == want
        for index, batch in enumerate(batches):
            rows = [(tuple(sources[i]), tuple(targets[i])) for i in pairs.rows(index)]
            assert read_pairs(batch) == rows
        pairs.on_epoch_end()


def orders(seed, shuffle=True, epochs=3):
    sources, targets = random_pairs(seed=5)
    pairs = BucketedPairs(sources, targets, batch_size=7, shuffle=shuffle, seed=seed)
    found = []
    for _ in range(epochs):
        found.append([pairs.rows(i) for i in range(len(pairs))])
        pairs.on_epoch_end()
    return found


def test_order_is_drawn_by_seed_and_epoch():
    assert orders(seed=3) == orders(seed=3)
    first, second, third = orders(seed=3)
    assert first != second != third != first
    assert orders(seed=4)[0] != first


def test_without_shuffle_the_order_stays():
    first, second, third = orders(seed=3, shuffle=False)
    assert first == second == third == orders(seed=4, shuffle=False)[0]
    assert all(rows == sorted(rows) for rows in first)


def test_a_batch_of_all_has_the_order_that_was_given():
    """Whatever their lengths: what is shown beside it stands in that order."""
    sources, targets = [[7, 8, 9, 7], [8], [9, 7]], [[5], [6], [7]]
    pairs = BucketedPairs(sources, targets, batch_size=3, shuffle=False)
    assert pairs[0][0]["source_ids"][:, 0].tolist() == [7, 8, 9]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("seed", range(7))
def test_first_two_batches_differ_in_length(seed, shuffle):
    sources, targets = random_pairs(seed)
    pairs = BucketedPairs(sources, targets, batch_size=7, shuffle=shuffle, seed=seed)
    for _ in range(3):
        assert pairs[0][1].shape != pairs[1][1].shape
        pairs.on_epoch_end()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_boundaries_pad_least(seed, count):
    """Against all choices of boundaries."""
    lengths = np.random.default_rng(seed).geometric(0.25, size=97)

    def padded(boundaries):
        return sum(min(b for b in boundaries if b >= n) for n in lengths.tolist())

    values = sorted(set(lengths.tolist()))
    best = min(
        padded([*inner, values[-1]])
        for size in range(count)
        for inner in itertools.combinations(values[:-1], size)
    )
    found = tightest_boundaries(lengths, count)
    assert found == sorted(set(found))
    assert len(found) <= count
    assert padded(found) == best


def test_more_buckets_than_lengths():
    assert tightest_boundaries([4, 4, 2], 7) == [2, 4]


@pytest.mark.parametrize(
    ("sources", "targets"), [([], []), ([[3]], []), ([[3]], [[4], [5]])]
)
def test_sides_must_match(sources, targets):
    with pytest.raises(ValueError, match="same number of sequences"):
        BucketedPairs(sources, targets, batch_size=2)


@pytest.mark.parametrize("boundaries", [[], [3, 7]])
def test_the_longest_pair_must_fit(boundaries):
    with pytest.raises(ValueError, match=r"longest=8. Add 8 to `boundaries`"):
        BucketedPairs(SOURCES, TARGETS, batch_size=2, boundaries=boundaries)


@pytest.mark.parametrize(
    ("argument", "name"),
    [({"batch_size": 0}, "batch_size"), ({"num_buckets": 0}, "num_buckets")],
)
def test_sizes_must_be_positive(argument, name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer"):
        BucketedPairs(SOURCES, TARGETS, **{"batch_size": 2, **argument})


def test_fit_takes_every_length():
    """Fails on TensorFlow when the first two batches agree in length."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = keras.layers.Embedding(13, 4)
            self.dense = keras.layers.Dense(13)

        def call(self, inputs):
            return self.dense(self.embedding(inputs["target_ids"]))

    # two short batches before a long one, were they not rearranged
    pairs = BucketedPairs(
        [[3]] * 4 + [[3] * 4] * 2,
        [[4]] * 4 + [[4] * 4] * 2,
        batch_size=2,
        boundaries=[2, 5],
        shuffle=False,
    )
    model = Model()
    model.compile(
        "sgd",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
    )
    history = model.fit(pairs, epochs=2, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert np.isfinite(model.evaluate(pairs, verbose=0))
