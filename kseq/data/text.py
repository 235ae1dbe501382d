"""One long text, for a language model."""

from pathlib import Path
from typing import NamedTuple

from kseq._checks import message


class TextData(NamedTuple):
    """What `load_text` returns: two parts of one text."""

    train: str
    dev: str


def load_text(path: str | Path) -> TextData:
    """Reads a text and keeps its last tenth for evaluation.

    The first `int(0.9 n)` of n characters are for train, the others for dev, as in
    nanoGPT, whose losses on Tiny Shakespeare can so be compared. Ids for a model of
    characters come from `Vocabulary(sorted(set(train + dev)))`, for one of sub-words
    from `BytePairTokenizer.train(train.splitlines(keepends=True), vocabulary_size)`;
    its batches are `TextWindows`.

    Args:
        path: str or Path. A text file in UTF-8. Line ends of any kind become newlines.

    Returns:
        `TextData(train, dev)`.

    Raises:
        FileNotFoundError: `path` must be a text file.
        ValueError: the text must have at least two characters.

    References:
        Karpathy, 2022, "nanoGPT", https://github.com/karpathy/nanoGPT
        Karpathy, 2015, "The unreasonable effectiveness of recurrent neural networks",
        for https://github.com/karpathy/char-rnn/tree/master/data/tinyshakespeare
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            message(
                "`path` must be a text file.",
                path=str(path),
                fix="Tiny Shakespeare is data/tinyshakespeare/input.txt of "
                "https://github.com/karpathy/char-rnn.",
            )
        )
    text = Path(path).read_text(encoding="utf-8-sig")
    cut = int(0.9 * len(text))
    if not cut:
        raise ValueError(
            message("The text must have at least two characters.", text=text)
        )
    return TextData(text[:cut], text[cut:])
