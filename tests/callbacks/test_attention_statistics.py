"""Curves of attention statistics, against those of the layer's own weights."""

import numpy as np
import pytest
from callbacks.events import read_events
from tiny_model import TIME, attention_weights, make_batches, make_model

from kseq.callbacks import AttentionStatistics

X, Y = make_batches(2)


def fit(log_dir, model, epochs=1, **options):
    callback = AttentionStatistics(log_dir, X, **options)
    model.fit(X, Y, batch_size=2, epochs=epochs, verbose=0, callbacks=[callback])
    return {
        tag.removeprefix("attention_statistics/attention/"): points
        for tag, points in read_events(log_dir / "kseq").items()
    }


def test_curves_of_each_head(tmp_path):
    model = make_model(heads=2)
    found = fit(tmp_path, model, epochs=2)
    table, kernel, *_ = model.get_weights()
    weights = attention_weights(table[X], kernel)
    entropy = -np.sum(weights * np.log(weights), axis=-1).mean()
    assert [step for step, _ in found["entropy/0"]] == [2, 4]
    # the second head of this model looks at all alike
    want = {
        "entropy/0": entropy,
        "entropy/1": np.log(TIME - 1),
        "normalized_entropy/0": entropy / np.log(TIME - 1),
        "normalized_entropy/1": 1,
        "first_key/0": weights[..., 0].mean(),
        "padding/0": 0,
    }
    for tag, value in want.items():
        np.testing.assert_allclose(found[tag][-1][1], value, rtol=2e-5, err_msg=tag)
    names = ["distance", "entropy", "first_key", "normalized_entropy", "padding"]
    assert sorted(found) == [f"{name}/{head}" for name in names for head in (0, 1)]


def test_weight_on_padding_shows(tmp_path):
    key_mask = np.ones((len(X), TIME - 1), bool)
    key_mask[:, -1] = False
    found = fit(tmp_path, make_model(heads=2), epochs=2, every=2, key_mask=key_mask)
    ((step, value),) = found["padding/1"]
    assert step == 4
    np.testing.assert_allclose(value, 1 / (TIME - 1), rtol=1e-6)


def test_what_does_not_fit(tmp_path):
    with pytest.raises(ValueError, match="must hold a part of the path"):
        fit(tmp_path, make_model(), layers=["decoder"])
    with pytest.raises(ValueError, match="`key_mask` must have the shape"):
        fit(tmp_path, make_model(), key_mask=np.ones((1, 1), bool))
