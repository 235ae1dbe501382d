"""Picks the half of a primitive that belongs to the active Keras backend."""

from collections.abc import Callable
from typing import Any

import keras


def half(**halves: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `halves[backend]`, or says which backends kseq runs on."""
    backend = keras.backend.backend()
    if backend not in halves:
        raise RuntimeError(
            f"kseq runs on the Keras backends {' and '.join(sorted(halves))}. "
            f"Received: KERAS_BACKEND={backend!r}."
        )
    return halves[backend]
