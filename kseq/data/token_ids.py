"""What token ids must be."""

from collections.abc import Sequence

import numpy as np

from kseq._checks import message


def check_token_ids(name: str, sequences: Sequence[Sequence[int]]) -> None:
    """Refuses sequences of anything but integers of at least 1 that fit into int32.

    Raises:
        TypeError: `` `sequences` must hold integer ids. `` with `name` in its place.
        ValueError: `` The ids of `sequences` must be at least 1... `` alike.
    """
    arrays = [np.asarray(ids) for ids in sequences if len(ids)]
    others = {str(array.dtype) for array in arrays if array.dtype.kind not in "iu"}
    if others:
        raise TypeError(
            message(f"`{name}` must hold integer ids.", dtypes=sorted(others))
        )
    smallest = min((int(array.min()) for array in arrays), default=1)
    largest = max((int(array.max()) for array in arrays), default=1)
    if smallest < 1 or largest >= 2**31:
        raise ValueError(
            message(
                f"The ids of `{name}` must be at least 1, 0 being padding, and fit "
                "into int32.",
                smallest=smallest,
                largest=largest,
            )
        )
