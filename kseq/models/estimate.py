"""What a training step of a Transformer takes, computed from its sizes."""

from dataclasses import dataclass
from typing import NamedTuple

from kseq.layers.blocks.feed_forward import GATED
from kseq.ops.attention import BLOCKWISE_PAIRS
from kseq.ops.attention_cut import KEYS, QUERIES
from kseq.ops.causal_attention import QUERIES as CUT

FLOAT_BYTES = 4
# tensors as wide as the feed-forward layer that its gradient needs: what goes into the
# activation, what comes out of it, and what XLA keeps in between
ACTIVATION_TENSORS = {"relu": 2, "silu": 3, "gelu": 4, "gelu_tanh": 4}
# of the size of the logits: logits, log-probabilities, the gradient of the wanted
# ones, that of the logits, and its transpose
LOGITS_TENSORS = 5
PAIR_TENSORS = 3  # exp(scores), the same masked, and weights
NORM_TENSORS = {"layer": 2, "rms": 1}  # the normalized input; 1 / sigma spread over D
NORMS = {"pre": 1, "post": 1, "deepnorm": 1, "sandwich": 2}  # of a sublayer


class Estimate(NamedTuple):
    """What `estimate` returns. Printed, it is readable.

    Attributes:
        parameters: how many there are, as `count_params` says.
        training_flops: floating-point operations of one step, forward and backward.
        peak_bytes: memory at the peak of one step.
    """

    parameters: int
    training_flops: int
    peak_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.parameters:,} parameters, {self.training_flops / 1e9:,.3g} GFLOPs "
            f"and {self.peak_bytes / 2**20:,.3g} MiB for a training step"
        )


@dataclass(frozen=True)
class Stack:
    """Blocks of one kind over B rows of T tokens.

    `source` is S, the length of the memory that they read, or None; `window` is W, how
    many tokens they look back, or None.
    """

    batch: int
    length: int
    num_layers: int
    width: int
    heads: int
    key_value_heads: int
    intermediate_dim: int
    activation: str
    norm: str
    placement: str
    causal: bool
    remat: bool
    source: int | None = None
    window: int | None = None

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    @property
    def memory_tokens(self) -> int:
        return self.batch * (self.source or 0)

    @property
    def key_value_width(self) -> int:
        """Of keys and values together, in the attention of the row to itself."""
        return 2 * self.width // self.heads * self.key_value_heads

    def flops(self) -> int:
        """Of a training step: two a multiplication in a matrix product.

        A product has two more of its size in the backward pass.
        """
        width, gated = self.width, self.activation in GATED
        kernels = 2 * width**2 + width * self.key_value_width
        kernels += (3 if gated else 2) * width * self.intermediate_dim
        projected = self.tokens * kernels
        forward, both = self._attention_products(self.length, self.causal)
        if self.source is not None:
            projected += 2 * width**2 * (self.tokens + self.memory_tokens)
            cross = self._attention_products(self.source, False)
            forward, both = forward + cross[0], both + cross[1]
        again = projected + forward if self.remat else 0
        return 2 * self.num_layers * (3 * projected + both + again)

    def _attention_products(self, source: int, causal: bool) -> tuple[int, int]:
        """Multiplications of queries, keys and values: forward, and with backward."""
        if self._is_blockwise(source):
            window = self.window if causal else None
            pairs = _pairs_in_blocks(self.length, source, causal, window)
            # the scores are computed again
            count = 7
        else:
            pairs, count = self._pairs_held(source, causal), 6
        products = self.batch * pairs * self.width
        return 2 * products, count * products

    def _is_blockwise(self, source: int) -> bool:
        return self.length * source >= BLOCKWISE_PAIRS

    def kept(self, blocks: int | None = None) -> int:
        """Floats that wait for the backward pass of all blocks, or of so many."""
        blocks = self.num_layers if blocks is None else blocks
        # with remat the input of each
        each = self.tokens * self.width if self.remat else self._kept_by_block()
        return blocks * each

    def at_work(self) -> int:
        """Floats of the backward pass of one block, beside what `kept` counts.

        A gradient of each tensor of width D, and two as wide as the feed-forward layer.
        """
        gradients = self._streams() + 2 * self.tokens * self.intermediate_dim
        gradients += self._pair_floats_at_work()
        return gradients + (self._kept_by_block() if self.remat else 0)

    def _streams(self) -> int:
        """Floats of the tensors of width D, or of heads, that a block keeps."""
        sublayers = 2 if self.source is None else 3
        norms = NORMS[self.placement] * NORM_TENSORS[self.norm]
        # of each sublayer its norms, its input and the stream behind it; queries and
        # contexts; keys and values
        floats = self.tokens * self.width * (sublayers * (norms + 2) + 2)
        floats += self.tokens * self.key_value_width
        if self.source is not None:
            floats += 2 * self.width * (self.tokens + self.memory_tokens)
        return floats

    def _kept_by_block(self) -> int:
        inner = ACTIVATION_TENSORS[GATED.get(self.activation, self.activation)]
        if self.activation in GATED:  # the other half, and the product
            inner += 2
        floats = self._streams() + inner * self.tokens * self.intermediate_dim
        floats += self._pair_floats(self.length, self.causal)
        if self.source is not None:
            floats += self._pair_floats(self.source, False)
        return floats

    def _pairs_held(self, source: int, causal: bool) -> int:
        """All of a rectangle; of a causal square those of each cut of queries."""
        if not causal:
            return self.length * source
        starts = range(0, self.length, CUT)
        ends = [min(start + CUT, self.length) for start in starts]
        return sum((end - start) * end for start, end in zip(starts, ends, strict=True))

    def _pair_floats(self, source: int, causal: bool) -> int:
        if self._is_blockwise(source):
            return 0
        pairs = self._pairs_held(source, causal)
        return PAIR_TENSORS * self.batch * self.heads * pairs

    def _pair_floats_at_work(self) -> int:
        """Of one block of pairs, where attention goes block by block."""
        if not self._is_blockwise(max(self.length, self.source or 0)):
            return 0
        pairs = QUERIES * KEYS
        return PAIR_TENSORS * self.batch * self.heads * pairs

    def ends(self) -> int:
        """Floats of the embeddings before the stack and of a final norm behind it."""
        norm = NORM_TENSORS[self.norm] + 1
        last = norm if self.placement in ("pre", "sandwich") else 0
        return self.tokens * self.width * (1 + last)


def _pairs_in_blocks(length: int, source: int, causal: bool, window: int | None) -> int:
    """Of the blocks that `kseq.ops.blockwise_attention` does not leave out."""
    queries, keys = min(QUERIES, length), min(KEYS, source)
    pairs = 0
    for first in range(0, length, queries):
        end = min(first + queries, source) if causal else source
        start = 0 if window is None else max(0, first - window + 1) // keys
        pairs += queries * keys * (-(-end // keys) - start)
    return pairs


def estimate(
    stacks: list[Stack], vocabulary_size: int, parameters: int, trainable: int
) -> Estimate:
    """Of a model of these stacks, the last of which makes logits.

    Args:
        stacks: one, or encoder and decoder.
        vocabulary_size: N of the logits, 0 where there are none.
        parameters: of the model.
        trainable: how many of them are trained.
    """
    first, last = stacks[0], stacks[-1]
    flops = sum(stack.flops() for stack in stacks)
    flops += 6 * last.tokens * last.width * vocabulary_size
    logits = LOGITS_TENSORS * last.tokens * vocabulary_size
    ends = sum(stack.ends() for stack in stacks)
    kept = sum(stack.kept() for stack in stacks)
    # the backward pass begins with all activations and ends with all gradients
    begin = kept + max(logits, last.at_work())
    end = trainable + first.kept(blocks=1) + first.at_work()
    floats = parameters + 2 * trainable + ends + max(begin, end)
    return Estimate(parameters, flops, FLOAT_BYTES * floats)
