"""Training changes outputs iff there is dropout; the same seed gives the same."""

import numpy as np
from helpers import assert_same, to_numpy
from keras import tree
from layer_cases import cases


def outputs(case, rate, training=True, calls=1):
    """Of a new layer with the same weights and seed, one tree a call."""
    layer = case.built(rate)
    found = [
        layer(*case.inputs(), **case.options, **_training(layer, training))
        for _ in range(calls)
    ]
    return [[to_numpy(y) for y in tree.flatten(y)] for y in found]


def _training(layer, training):
    return {"training": training} if layer._call_has_training_arg else {}


def differ(first, second):
    return np.abs(first[0] - second[0]).max() > 1e-3


@cases()
def test_training_without_dropout_changes_nothing(case):
    (training,) = outputs(case, 0.0)
    assert_same("outputs", training, outputs(case, 0.0, training=False)[0])
    assert not [v for v in case.built().variables if "seed" in v.path]


@cases(dropout=True)
def test_training_with_dropout(case):
    """Every call draws anew; the same seed draws the same; inference draws nothing."""
    first, second = outputs(case, 0.5, calls=2)
    inference = outputs(case, 0.5, training=False)[0]
    assert differ(first, inference)
    assert differ(first, second)
    again = outputs(case, 0.5, calls=2)
    assert_same("again", again, [first, second])
    assert_same("inference", inference, outputs(case, 0.0)[0])


@cases(dropout=False)
def test_a_layer_without_dropout_takes_no_seed(case):
    assert not [v for v in case.built(0.5).variables if "seed" in v.path]
