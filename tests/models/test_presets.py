"""Published sizes: their parameters, to the last one."""

import pytest

from kseq.models import TransformerEncoder, TransformerLM, TransformerSeq2Seq
from kseq.models.presets import PRESETS

PARAMETERS = {
    # Radford et al. (2019): what every port of the 124M model counts
    (TransformerLM, "gpt2-small"): 124_439_808,
    # llama2.c: stories15M
    (TransformerLM, "llama-tiny"): 15_191_712,
    # by the shapes of Vaswani et al. (2017), table 3, which says 65 and 213 million
    (TransformerSeq2Seq, "vaswani-base"): 63_082_496,
    (TransformerSeq2Seq, "vaswani-big"): 214_245_376,
}
PUBLISHED = {"vaswani-base": 65e6, "vaswani-big": 213e6}
SMALL = {
    TransformerLM: {"vocabulary_size": 11},
    TransformerSeq2Seq: {"source_vocabulary_size": 11, "target_vocabulary_size": 11},
}


def test_each_preset_is_counted_here():
    names = [(builder.__name__, name) for builder, name in PARAMETERS]
    assert names == [(b, name) for b, presets in PRESETS.items() for name in presets]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("builder", "name"), PARAMETERS, ids=[n for _, n in PARAMETERS]
)
def test_parameters(builder, name):
    count = builder.from_preset(name).count_params()
    assert count == PARAMETERS[builder, name]
    if name in PUBLISHED:  # within 3 %: their vocabulary is one of "about 37000 tokens"
        assert abs(count / PUBLISHED[name] - 1) < 0.03


@pytest.mark.parametrize(
    ("builder", "name"), PARAMETERS, ids=[n for _, n in PARAMETERS]
)
def test_parameters_of_few_layers(builder, name):
    """What two layers have over one, times what is missing, is in the whole."""
    whole, arguments = PARAMETERS[builder, name], PRESETS[builder.__name__][name]
    layers = arguments["num_layers"]
    sizes = {"num_heads": 1}  # as many parameters as with more
    one, two = (
        builder.from_preset(name, num_layers=n, **SMALL[builder], **sizes)
        for n in (1, 2)
    )
    assert one.num_layers == 1
    assert one.num_heads == 1
    assert one.placement == arguments.get("placement", "pre")
    a_layer = two.count_params() - one.count_params()
    ids = arguments.get("vocabulary_size", arguments.get("target_vocabulary_size"))
    table = (ids - 11) * arguments["hidden_dim"]
    assert one.count_params() + (layers - 1) * a_layer + table == whole


def test_each_model_has_positions_of_its_own():
    first, second = (
        TransformerLM.from_preset(
            "gpt2-small", num_layers=1, vocabulary_size=11, hidden_dim=12, name="gpt"
        )
        for _ in range(2)
    )
    assert first.positions is not second.positions
    assert first.positions.sequence_length == 1024
    assert first.name == "gpt"


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        (TransformerLM, "must be one of `TransformerLM`: 'gpt2-small', 'llama-tiny'"),
        (TransformerSeq2Seq, "`TransformerSeq2Seq`: 'vaswani-base', 'vaswani-big'"),
        (TransformerEncoder, "`TransformerEncoder`: there is none"),
    ],
)
def test_an_unknown_name_is_told_the_known_ones(builder, words):
    with pytest.raises(ValueError, match=f"{words}.*preset='bert'"):
        builder.from_preset("bert")
