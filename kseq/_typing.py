"""Names for the kinds of value that kseq passes around."""

from typing import Any

Tensor = Any  # a tensor of the backend, a keras.KerasTensor or a NumPy array
Shape = tuple[int | None, ...]
