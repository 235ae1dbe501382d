"""A model with its tokenizer: text in, text out, in one file."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras

from kseq._checks import message
from kseq._typing import Tensor

_END = 2  # of `kseq.data.Vocabulary` and `BytePairTokenizer`


@keras.saving.register_keras_serializable(package="kseq")
class TextGenerator(keras.Model):
    """Continues or translates text, and is saved with all that it needs for that.

    Args:
        model: a language model or an encoder-decoder of `kseq.models`.
        tokenizer: what its tokens mean: a `kseq.data.BytePairTokenizer`, a
            `kseq.data.Vocabulary`, or an object of a registered class with `encode`,
            `decode`, `get_config` and a length.
        source_tokenizer: that of the source of an encoder-decoder. Defaults to
            `tokenizer`.

    Call arguments:
        inputs: those of the model.

    Returns:
        What the model returns.

    Raises:
        TypeError: `` `model` must generate... `` and `` `tokenizer` must encode and
            decode... ``
        ValueError: `` `tokenizer` must know all ids that the model makes. ``

    Example:

    >>> letters = kseq.data.Vocabulary("abcdefghijklmnopqrstuvwxyz ")
    >>> model = kseq.models.TransformerLM(
    ...     vocabulary_size=len(letters), num_layers=1, hidden_dim=8, num_heads=2)
    >>> generator = kseq.models.TextGenerator(model, letters)
    >>> texts = generator.generate(["once upon", "a time"], 5)
    >>> len(texts)
    2
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Any,
        source_tokenizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not hasattr(model, "generate"):
            raise TypeError(
                message(
                    "`model` must generate: a language model or an encoder-decoder of "
                    "kseq.models.",
                    model=type(model).__name__,
                )
            )
        self.model = model
        self.tokenizer = _check_tokenizer("tokenizer", tokenizer)
        size = getattr(model, "target_vocabulary_size", None)
        size = getattr(model, "vocabulary_size", size)
        if size is not None and size > len(tokenizer):
            raise ValueError(
                message(
                    "`tokenizer` must know all ids that the model makes.",
                    tokenizer=len(tokenizer),
                    model=size,
                )
            )
        self.source_tokenizer = tokenizer
        self.built = True  # its model was
        if source_tokenizer is not None:
            self.source_tokenizer = _check_tokenizer(
                "source_tokenizer", source_tokenizer
            )

    def call(self, inputs: Any) -> Tensor:
        return self.model(inputs)

    def generate(
        self, texts: Sequence[str], max_new_tokens: int, **options: Any
    ) -> list[Any]:
        """What follows each text, or what it becomes in the other language.

        Args:
            texts: a list of what the tokenizer encodes.
            max_new_tokens: int, the most tokens of each.
            **options: `strategy`, `seed` and `batch_size` of the model's `generate`.

        Returns:
            A list of what the tokenizer makes of the new tokens, up to the end mark:
            texts, or lists of symbols from a `Vocabulary`. With the `num_return` of
            `BeamSearch` a list of lists of them.
        """
        if isinstance(texts, str):
            raise TypeError(message("`texts` must be a list of texts.", texts=texts))
        made = self.model.generate(**(self._arguments(texts, max_new_tokens) | options))
        if made.token_ids.ndim == 3:
            return [list(map(self.tokenizer.decode, rows)) for rows in made.token_ids]
        return list(map(self.tokenizer.decode, made.token_ids))

    def stream(self, text: str, max_new_tokens: int, **options: Any) -> Iterator[Any]:
        """Yields what `generate` makes of a text, as it is made.

        Args:
            text: what the tokenizer encodes, one of them.
            max_new_tokens: int, the most tokens.
            **options: `strategy`, `seed` and `chunk_size` of the model's `stream`.

        Yields:
            The pieces of the text, which make it when they are joined.
        """
        ids: list[int] = []
        before = self.tokenizer.decode(ids)
        arguments = self._arguments([text], max_new_tokens)
        for new in self.model.stream(**(arguments | options)):
            ids.extend(new[0].tolist())
            # a character may be made of several tokens: only whole texts are decoded
            after = self.tokenizer.decode(ids)
            if after[: len(before)] == before and not _is_cut(after):
                yield after[len(before) :]
                before = after
        if len(after := self.tokenizer.decode(ids)) > len(before):
            yield after[len(before) :]

    def _arguments(self, texts: Sequence[str], max_new_tokens: int) -> dict[str, Any]:
        """Those of the model's `generate` and `stream`."""
        if hasattr(self.model, "end_id"):
            end = self.model.end_id
            ids = [[*self.source_tokenizer.encode(text), end] for text in texts]
            return {"source_ids": ids, "max_length": max_new_tokens}
        return {
            "prompts": list(map(self.tokenizer.encode, texts)),
            "max_new_tokens": max_new_tokens,
            "stop_ids": [_END],
        }

    def get_config(self) -> dict[str, Any]:
        serialize = keras.saving.serialize_keras_object
        same = self.source_tokenizer is self.tokenizer
        return {
            **super().get_config(),
            "model": serialize(self.model),
            "tokenizer": serialize(self.tokenizer),
            "source_tokenizer": None if same else serialize(self.source_tokenizer),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "TextGenerator":
        """The generator that `get_config` describes."""
        parts = {
            key: keras.saving.deserialize_keras_object(
                config[key], custom_objects=custom_objects
            )
            for key in ("model", "tokenizer", "source_tokenizer")
        }
        return cls(**{**config, **parts})


def _is_cut(text: Any) -> bool:
    """Whether it ends within a character of several bytes."""
    return isinstance(text, str) and text.endswith("\ufffd")


def _check_tokenizer(name: str, tokenizer: Any) -> Any:
    if not (hasattr(tokenizer, "encode") and hasattr(tokenizer, "decode")):
        raise TypeError(
            message(
                f"`{name}` must encode and decode, as a `kseq.data.BytePairTokenizer` "
                "does.",
                **{name: type(tokenizer).__name__},
            )
        )
    return tokenizer
