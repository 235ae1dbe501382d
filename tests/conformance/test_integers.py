"""Integers where floats belong are refused, or computed with as floats."""

import keras
import pytest
from layer_cases import cases

import kseq


def first_in_integers(tree):
    """The first input, or the tensors of its list, in int32."""
    return keras.tree.map_structure(lambda x: (9 * x).astype("int32"), tree)


@cases(ids=False)
def test_integers_give_no_integers(case):
    """Outputs in integers would be rounded."""
    first, *others = case.inputs()
    layer = case.built()
    try:
        outputs = layer(first_in_integers(first), *others, **case.options)
    except TypeError as error:
        if "must be floating-point" not in str(error):
            raise
        return
    for y in keras.tree.flatten(outputs):
        assert "int" not in keras.backend.standardize_dtype(y.dtype)


@pytest.mark.parametrize(
    "block", ["TransformerEncoderBlock", "TransformerDecoderBlock"]
)
def test_a_forgotten_embedding_is_named(block):
    layer = getattr(kseq.layers, block)(
        kseq.layers.MultiHeadAttention(2, 4), kseq.layers.FeedForward(8)
    )
    token_ids = keras.ops.ones((2, 3, 8), "int32")
    with pytest.raises(TypeError, match=r"`inputs` must be floating-point.*Embedding"):
        layer(token_ids)
