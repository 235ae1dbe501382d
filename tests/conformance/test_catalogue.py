"""Every exported layer has a case, so that what is promised of all holds for it."""

import keras
import layer_cases
import numpy as np
from helpers import to_numpy
from layer_cases import LAYER_CASES, cases, exported_layers


def test_catalogue_is_complete():
    assert set(LAYER_CASES) == set(exported_layers())


def test_a_layer_without_a_case_is_seen(monkeypatch):
    monkeypatch.setattr(
        layer_cases.kseq.layers, "__all__", [*layer_cases.kseq.layers.__all__, "Other"]
    )
    monkeypatch.setattr(
        layer_cases.kseq.layers, "Other", type("Other", (layer_cases.layers.GRU,), {}),
        raising=False,
    )  # fmt: skip
    assert set(exported_layers()) - set(LAYER_CASES)


def test_each_case_makes_its_layer():
    for layer_class, case in LAYER_CASES.items():
        assert type(case.make(0.0)) is layer_class


@cases(masks=True)
def test_the_masks_of_a_case_change_its_outputs(case):
    layer, x = case.built(), case.inputs()
    masked, plain = (
        keras.tree.flatten(layer(*x, **masks, **case.options))
        for masks in (case.mask_arrays(), {})
    )
    assert np.abs(to_numpy(masked[0]) - to_numpy(plain[0])).max() > 1e-3
