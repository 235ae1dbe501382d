"""Additive attention that knows where it looked before."""

from typing import Any

from keras import ops

from kseq._typing import Tensor
from kseq.layers.attention.bahdanau_attention import BahdanauAttention
from kseq.layers.recurrent.scan_cell import scan_cell


class AlignedAttention(BahdanauAttention):
    """Base of additive attention whose weights depend on those of earlier queries.

        w_t = align(q_t, keys, a_{t-1});  a_t = next_alignment(a_{t-1}, w_t)

    The alignment a_t `(B, S)` is at least float32, whatever the policy, and is the
    weights w_t unless a subclass says otherwise. A call with one query takes a step
    from the `alignment` that it is given; a call with many takes them in order, and
    a masked query takes no step.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        # Keras would round the alignment to the compute dtype on its way in
        super().__init__(units, autocast=False, **kwargs)

    def align(
        self,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None,
        alignment: Tensor,
        training: bool,
    ) -> Tensor:
        """Weights `(B, 1, S)` of one query `(B, 1, Q)` after `alignment` `(B, S)`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `align`.")

    def initial_alignment(self, value: Tensor) -> list[Tensor]:
        """See `MemoryAttention.initial_alignment`: zeros."""
        return [ops.zeros_like(value[..., 0], dtype=self.weights_dtype)]

    def next_alignment(self, alignment: list[Tensor], weights: Tensor) -> list[Tensor]:
        """See `MemoryAttention.next_alignment`: the weights."""
        del alignment
        return [weights]

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None,
        alignment: list[Tensor],
        *,
        query_mask: Tensor | None,
        training: bool,
    ) -> Tensor:
        """See `MemoryAttention.attend`."""
        if query.shape[1] == 1:
            return self.align(query, key, mask, alignment[0], training)

        def step(
            inputs: list[Tensor], alignment: list[Tensor], key: Tensor
        ) -> tuple[Tensor, list[Tensor]]:
            query, *masks = (ops.expand_dims(x, 1) for x in inputs)
            mask = masks[0] if masks else None
            weights = self.align(query, key, mask, alignment[0], training)[:, 0]
            return weights, self.next_alignment(alignment, weights)

        sequences = [query]
        if mask is not None:
            pairs = (*ops.shape(query)[:2], ops.shape(key)[1])
            sequences.append(ops.broadcast_to(mask, pairs))
        weights, _, _ = scan_cell(
            step,
            sequences,
            alignment,
            key,
            variables=self.step_variables,
            seeded=self,
            mask=query_mask,
            empty_output=ops.zeros_like(alignment[0]),
        )
        return weights

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["normalize"]  # each subclass has one form
        return config
