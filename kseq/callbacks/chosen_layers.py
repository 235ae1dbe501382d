"""Which attention layers a callback writes about."""

from collections.abc import Sequence
from typing import Any

from kseq._checks import message


def chosen_layers(maps: dict[str, Any], layers: Sequence[str] | None) -> dict[str, Any]:
    """Those of `maps` whose path holds one of `layers`; None chooses all.

    Raises:
        TypeError: `` `layers` must be a list of strings. ``
        ValueError: `` `layers` must hold a part of the path of an attention layer... ``
    """
    if layers is None:
        return maps
    if isinstance(layers, str) or not all(isinstance(part, str) for part in layers):
        raise TypeError(
            message(
                "`layers` must be a list of strings.",
                fix="Parts of the paths of layers, such as ['block_0'].",
                layers=layers,
            )
        )
    chosen = {
        name: found
        for name, found in maps.items()
        if any(part in name for part in layers)
    }
    if not chosen:
        raise ValueError(
            message(
                "`layers` must hold a part of the path of an attention layer.",
                fix=f"The model has {', '.join(sorted(maps))}.",
                layers=layers,
            )
        )
    return chosen
