"""What models generate, against their own logits of each row alone and whole."""

import numpy as np
import pytest
from generation.table_model import log_softmax
from helpers import to_numpy
from models.small_models import language_model, recurrent, seq2seq, spread

import kseq
from kseq.generation import BeamSearch, Greedy, RepetitionPenalty

PROMPTS = [[5, 6, 7, 8], [3, 4, 10, 9, 2, 6, 5], [11]]
SOURCES = [[4, 9, 8, 7, 6, 5, 2], [7, 3, 8, 2], [6, 2]]
LENGTH, END = 6, 2


def recurrent_seq2seq(**options):
    return spread(kseq.models.RecurrentSeq2Seq(11, 13, 6, 8, num_layers=2, **options))


slow = pytest.mark.slow
MODELS = [
    pytest.param(
        lambda: language_model(num_key_value_heads=1, tie_embeddings=False),
        id="TransformerLM",
    ),
    pytest.param(
        lambda: language_model(positions="sinusoidal", placement="post"),
        id="TransformerLM-sinusoidal",
        marks=slow,
    ),
    pytest.param(
        lambda: language_model(positions="alibi", norm="rms"),
        id="TransformerLM-alibi",
        marks=slow,
    ),
    pytest.param(
        lambda: language_model(positions="t5"), id="TransformerLM-t5", marks=slow
    ),
    pytest.param(
        lambda: language_model(positions=kseq.layers.PositionEmbedding(40)),
        id="TransformerLM-learned",
        marks=slow,
    ),
    pytest.param(
        lambda: language_model(window=3), id="TransformerLM-window", marks=slow
    ),
    pytest.param(lambda: recurrent(), id="RecurrentLM"),
    pytest.param(
        lambda: recurrent(cell="gru", tie_embeddings=True),
        id="RecurrentLM-gru",
        marks=slow,
    ),
    pytest.param(lambda: seq2seq(tie_embeddings=False), id="TransformerSeq2Seq"),
    pytest.param(lambda: recurrent_seq2seq(), id="RecurrentSeq2Seq"),
    pytest.param(
        lambda: recurrent_seq2seq(cell="lstm", attention=None),
        id="RecurrentSeq2Seq-plain",
        marks=slow,
    ),
    pytest.param(
        lambda: recurrent_seq2seq(attention="location"),
        id="RecurrentSeq2Seq-location",
        marks=slow,
    ),
]


def generated(model, strategy):
    if hasattr(model, "start_id"):
        return model.generate(SOURCES, max_length=LENGTH, strategy=strategy)
    return model.generate(PROMPTS, LENGTH, strategy=strategy, stop_ids=[END])


def log_probabilities(model, row, ids):
    """Of what may follow at each of `ids`, `(L, N)`, by one whole run."""
    if hasattr(model, "start_id"):
        target = [model.start_id, *ids[:-1]]
        inputs = {
            "source_ids": np.array([SOURCES[row]]),
            "target_ids": np.array([target]),
        }
        logits = to_numpy(model(inputs))[0]
    else:
        whole = np.array([[*PROMPTS[row], *ids[:-1]]])
        logits = to_numpy(model(whole))[0, len(PROMPTS[row]) - 1 :]
    return log_softmax(logits)


@pytest.mark.parametrize("make", MODELS)
def test_generation_equals_runs_over_whole_rows(make):
    """Greedily, and with beams, whose states change places; prompts of any length."""
    model = make()
    greedy = generated(model, Greedy())
    search = BeamSearch(3, length_penalty=0.6, num_return=2)
    beams = generated(model, search)
    for row in range(3):
        n = greedy.lengths[row]
        ids = greedy.token_ids[row, :n]
        log_p = log_probabilities(model, row, ids)
        np.testing.assert_array_equal(1 + log_p[:, 1:].argmax(-1), ids)
        assert n == LENGTH or ids[-1] == END
        np.testing.assert_allclose(
            greedy.log_probabilities[row, :n], log_p[np.arange(n), ids], atol=1e-5
        )
        for place in range(2):
            n = beams.lengths[row, place]
            ids = beams.token_ids[row, place, :n]
            log_p = log_probabilities(model, row, ids)[np.arange(n), ids]
            np.testing.assert_allclose(
                beams.log_probabilities[row, place, :n], log_p, atol=1e-5
            )
            score = log_p.sum() / ((5 + n) / 6) ** 0.6
            np.testing.assert_allclose(beams.scores[row, place], score, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [language_model, lambda: language_model(packed=True), recurrent, seq2seq],
    ids=["TransformerLM", "packed", "RecurrentLM", "TransformerSeq2Seq"],
)
def test_finished_rows_are_seen_at_once(make):
    """The model's outputs for them are what the tokens were chosen from."""
    model = make()
    made = generated(model, Greedy())
    given = SOURCES if hasattr(model, "start_id") else PROMPTS
    x = model.whole_inputs(given, made.token_ids)
    log_p = log_softmax(to_numpy(model(x))[:, -made.token_ids.shape[1] :])
    log_p = np.take_along_axis(log_p, made.token_ids[..., None], axis=-1)[..., 0]
    real = made.token_ids != 0
    np.testing.assert_allclose(
        np.where(real, log_p, 0), made.log_probabilities, atol=1e-5
    )


def test_what_was_attended_to_for_each_token():
    """Weights that sum to 1, of the source and not of what pads it."""
    model = recurrent_seq2seq()
    ids = np.array([[5, END, 0], [7, 8, 9], [END, 0, 0]])
    x = model.whole_inputs(SOURCES, ids)
    (weights,) = kseq.diagnostics.attention_maps(model, x).values()
    np.testing.assert_allclose(weights.sum(-1)[ids != 0], 1, atol=1e-5)
    for row, source in zip(weights, SOURCES, strict=True):
        assert not row[:, len(source) :].any()


def test_prompts_are_read_in_any_number_of_passes():
    """Padding on the left; the state after each is the same."""
    model = language_model()
    rows = np.array([[0, 0, 5, 6, 7, 8], [3, 4, 10, 9, 2, 6]], "int32")
    whole, end = model.read(rows, model.empty_state(2, 6))
    first, state = model.read(rows[:, :4], model.empty_state(2, 6))
    second, state = model.read(rows[:, 4:], state)
    parts = np.concatenate([to_numpy(first), to_numpy(second)], axis=1)
    np.testing.assert_allclose(parts, to_numpy(whole), atol=1e-5)
    want = to_numpy(model(rows))
    np.testing.assert_allclose(to_numpy(whole)[rows != 0], want[rows != 0], atol=1e-5)
    assert to_numpy(end["position"]).tolist() == [4, 6]
    assert to_numpy(state["position"]).tolist() == [4, 6]


def test_only_real_tokens_need_learned_positions():
    """Prompts are padded to 16; one of 7 and 3 more tokens, of which 2 are read."""
    positions = kseq.layers.PositionEmbedding(9)
    made = language_model(positions=positions).generate(PROMPTS, 3)
    assert made.token_ids.shape == (3, 3)
    with pytest.raises(ValueError, match=r"fewer learned positions.*max_length=10"):
        language_model(positions=positions).generate(PROMPTS, 4)


def test_a_stream_of_a_model():
    model = language_model()
    chunks = list(model.stream(PROMPTS, 5, chunk_size=2))
    whole = model.generate(PROMPTS, 5).token_ids
    np.testing.assert_array_equal(np.concatenate(chunks, axis=1), whole)


def test_a_source_is_no_history():
    """Its ids are of another vocabulary: 10 in the one is none of the other's."""
    model = recurrent_seq2seq()
    strategy = Greedy([RepetitionPenalty(1e6)])
    made = model.generate([[10, 10, 2]], max_length=4, strategy=strategy)
    want = model.generate([[10, 10, 2]], max_length=1).token_ids[0, 0]
    assert made.token_ids[0, 0] == want
    assert len(set(made.token_ids[0].tolist())) == made.lengths[0]


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ([[5], []], "must be rows of integers, at least one in each"),
        ([[5], [0, 0]], r"needs at least one id that is not 0.*rows_without=\[1\]"),
        ([[13]], "must lie in .*largest=13"),
        ([[0.5]], "must be rows of integers.*dtype='float64'"),
    ],
    ids=["empty", "padding", "too large", "floats"],
)
def test_bad_prompts_are_named(prompts, words):
    with pytest.raises(ValueError, match=f"`prompts` {words}|of `prompts` {words}"):
        language_model().generate(prompts, 3)


def test_finished_rows_need_no_more_positions_than_they_have_tokens():
    model = language_model(positions=kseq.layers.PositionEmbedding(9))
    made = model.generate(PROMPTS, 3)
    assert model.whole_inputs(PROMPTS, made.token_ids).shape == (3, 9)
    model(model.whole_inputs(PROMPTS, made.token_ids))


@pytest.mark.parametrize("make", [language_model, recurrent_seq2seq])
@pytest.mark.parametrize("shape", [(3, 2, 4), (2, 4), (3, 0)], ids=str)
def test_finished_rows_of_another_shape_are_named(make, shape):
    with pytest.raises(ValueError, match=r"`token_ids` must be integers of shape"):
        make().whole_inputs([[5, 2], [6], [7]], np.ones(shape, int))
