"""What the Transformer builders share beside their blocks: presets and an estimate."""

from typing import Any, Self

from kseq.models.presets import preset_arguments
from kseq.models.transformer_model import TransformerModel


class TransformerBuilder(TransformerModel):
    """Base of the builders, which a config describes."""

    @classmethod
    def from_preset(cls, preset: str, /, **overrides: Any) -> Self:
        """A model of published sizes with random weights.

        Args:
            preset: its name; the class says which there are.
            **overrides: arguments that replace those of the preset.

        Raises:
            ValueError: `` `preset` must be one of `TransformerLM`: ... ``
        """
        return cls(**{**preset_arguments(cls.__name__, preset), **overrides})
