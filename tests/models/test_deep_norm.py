"""DeepNorm's constants and its first weights."""

import numpy as np
import pytest
from helpers import to_numpy

from kseq.models import TransformerLM, TransformerSeq2Seq
from kseq.models.deep_norm import encoder_and_decoder, single_stack


@pytest.mark.parametrize(
    ("num_layers", "alpha", "beta"),
    [
        (12, 2.2133638394, 0.3194715521),
        (24, 2.6321480259, 0.2686424830),
        (100, 3.7606030931, 0.1880301547),
    ],
)
def test_constants_of_one_stack(num_layers, alpha, beta):
    """Figure 2: (2 N)^(1/4) and (8 N)^(-1/4), worked by hand."""
    np.testing.assert_allclose(single_stack(num_layers), (alpha, beta), rtol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "encoder", "decoder"),
    [
        ((6, 6), (1.4179381407, 0.4969892408), (2.0597671439, 72**-0.25)),
        ((18, 18), (1.9987463180, 0.3525710060), (2.7108060108, 0.2608474300)),
    ],
)
def test_constants_of_encoder_and_decoder(sizes, encoder, decoder):
    """Figure 2, worked by hand."""
    found = encoder_and_decoder(*sizes)
    np.testing.assert_allclose(found, (encoder, decoder), rtol=1e-9)


def check_gains(block, beta):
    """A kernel of gain g has the deviation g sqrt(2 / (inputs + outputs))."""
    parts = [block.mixer]
    if getattr(block, "cross_attention", None) is not None:
        parts.append(block.cross_attention)
    gains = [
        (getattr(part, f"{name}_dense"), gain)
        for part in parts
        for name, gain in (("query", 1), ("key", 1), ("value", beta), ("output", beta))
    ]
    feed_forward = block.feed_forward
    gains += [(feed_forward.input_dense, beta), (feed_forward.output_dense, beta)]
    for dense, gain in gains:
        kernel = to_numpy(dense.kernel)
        width = kernel.size // 96  # the other side is D = 96, before or behind
        want = gain * np.sqrt(2 / (96 + width))
        # of 9,216 values or more: a deviation of some 0.5 %
        np.testing.assert_allclose(kernel.std(), want, rtol=0.03, err_msg=dense.path)


def test_first_weights_and_residual_scales():
    model = TransformerLM(11, 2, 96, 2, placement="deepnorm")
    constants = single_stack(2)
    for block in model.blocks:
        check_gains(block, constants.beta)
        assert block.mixer_connection.residual_scale == constants.alpha
        assert block.feed_forward_connection.residual_scale == constants.alpha
    assert model.final_norm is None
    check_gains(TransformerLM(11, 1, 96, 2, placement="post").blocks[0], 1)


def test_first_weights_of_encoder_and_decoder():
    model = TransformerSeq2Seq(11, 13, 1, 96, 2, placement="deepnorm")
    encoder, decoder = encoder_and_decoder(1, 1)
    check_gains(model.encoder_blocks[0], encoder.beta)
    check_gains(model.decoder_blocks[0], decoder.beta)
    assert model.decoder_blocks[0].cross_connection.residual_scale == decoder.alpha
