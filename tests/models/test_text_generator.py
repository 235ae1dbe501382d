"""Text in, text out: against encoding, generating and decoding by hand."""

import keras
import pytest
from models.small_models import language_model, spread

import kseq
from kseq.data import BytePairTokenizer, Vocabulary
from kseq.generation import BeamSearch
from kseq.models import TextGenerator

LINES = ["low lower lowest", "new newer newest", "ein Übermaß an Maß"]
LETTERS = Vocabulary("abcdefghij")


@pytest.fixture(scope="module")
def sub_words():
    tokenizer = BytePairTokenizer.train(LINES, vocabulary_size=270)
    model = kseq.models.TransformerLM(len(tokenizer), 1, 8, 2, tie_embeddings=False)
    return TextGenerator(spread(model), tokenizer)


def test_it_goes_on_as_its_model_does(sub_words):
    texts = ["new low", "Übermaß"]
    ids = [sub_words.tokenizer.encode(text) for text in texts]
    made = sub_words.model.generate(ids, 6, stop_ids=[2]).token_ids
    want = list(map(sub_words.tokenizer.decode, made))
    assert sub_words.generate(texts, 6) == want
    assert all(isinstance(text, str) for text in want)


def test_a_stream_makes_the_same_text(sub_words):
    pieces = list(sub_words.stream("new low", 9, chunk_size=1))
    assert "".join(pieces) == sub_words.generate(["new low"], 9)[0]


def test_symbols_and_the_best_rows():
    generator = TextGenerator(language_model(), LETTERS)
    (symbols,) = generator.generate(["abc"], 4)
    assert isinstance(symbols, list)
    search = BeamSearch(3, num_return=2)
    ((first, second),) = generator.generate(["abc"], 4, strategy=search)
    assert first != second


def test_a_file_holds_all(sub_words, tmp_path):
    seq2seq = kseq.models.RecurrentSeq2Seq(len(LETTERS), 13, 6, 8)
    pair = TextGenerator(spread(seq2seq), Vocabulary("0123456789"), LETTERS)
    for generator, texts in ((sub_words, ["new"]), (pair, ["abc", "jig"])):
        generator.save(tmp_path / "generator.keras")
        loaded = keras.saving.load_model(tmp_path / "generator.keras")
        assert loaded.generate(texts, 5) == generator.generate(texts, 5)
    ids = [[*LETTERS.encode(text), 2] for text in ("abc", "jig")]
    made = seq2seq.generate(ids, max_length=5).token_ids
    want = [Vocabulary("0123456789").decode(row) for row in made]
    assert pair.generate(["abc", "jig"], 5) == want
    pieces = pair.stream("abc", 5, chunk_size=2)
    assert [symbol for piece in pieces for symbol in piece] == want[0]


def test_bad_arguments_are_named(sub_words):
    with pytest.raises(TypeError, match="`texts` must be a list of texts"):
        sub_words.generate("new", 3)
    with pytest.raises(TypeError, match=r"`tokenizer` must encode and decode.*'str'"):
        TextGenerator(sub_words.model, "words")
    with pytest.raises(ValueError, match="`tokenizer` must know all ids"):
        TextGenerator(sub_words.model, LETTERS)
    with pytest.raises(TypeError, match=r"`model` must generate.*Sequential"):
        TextGenerator(keras.Sequential(), LETTERS)
