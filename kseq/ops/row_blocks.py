"""The rows of a batch in blocks that a processor works on side by side."""

from keras import ops

from kseq._typing import Tensor
from kseq.backend import parallel_chains

_FEWEST_ROWS = 8  # that are worth a second chain of steps


def row_blocks(x: Tensor) -> list[slice]:
    """Slices of the rows of `x`, as many as run side by side; few rows are one."""
    rows = x.shape[0]
    if parallel_chains() == 1 or (rows is not None and rows < _FEWEST_ROWS):
        return [slice(None)]
    half = (ops.shape(x)[0] + 1) // 2
    return [slice(None, half), slice(half, None)]


def joined(blocks: list[Tensor]) -> Tensor:
    """The rows of all blocks in one tensor."""
    return blocks[0] if len(blocks) == 1 else ops.concatenate(blocks, axis=0)
