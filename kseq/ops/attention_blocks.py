"""The square of queries and keys, cut into blocks, and what each block sees."""

from dataclasses import dataclass
from typing import NamedTuple

from keras import ops

from kseq._typing import Shape, Tensor
from kseq.backend import Buffer
from kseq.ops.dot_product_attention import query_positions
from kseq.ops.dropout import kept_places
from kseq.ops.masks import causal_mask, combine_masks


class BlockInputs(NamedTuple):
    """What blockwise attention runs over, cut into blocks of t queries and s keys.

    Here `N` is B times G, the key heads of all sequences, and R is the number of
    query heads for each of them. A size with an asterisk may be 1.

    Attributes:
        query: `(T/t, N, R t, K)`, scaled.
        key: `(S/s, N, s, K)`.
        value: `(S/s, N, s, V)`.
        offset: int `(B*,)`.
        sinks: `(G, R, 1, 1)` or None.
        bias: `(n, B*, G*, R*, t, s)`, or by distance `(n, 1, G, R, 1, t + s - 1)`;
            or None. `AttentionBlocks.bias_index` says which of the n is where.
        query_mask: bool `(B, T)` or None.
        value_mask: bool `(B, S)` or None.
        attention_mask: bool `(B*, G*, R*, T, S)` or None.
        seed: int `(2,)` or None.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    offset: Tensor | None = None
    sinks: Tensor | None = None
    bias: Tensor | None = None
    query_mask: Tensor | None = None
    value_mask: Tensor | None = None
    attention_mask: Tensor | None = None
    seed: Tensor | None = None


@dataclass(frozen=True)
class AttentionBlocks:
    """How the square is cut, and which of its pairs see each other.

    Attributes:
        queries: t, in a block.
        keys: s, in a block.
        groups: G, key heads.
        repeats: R, query heads for each key head.
        use_causal_mask: whether keys after the query are hidden.
        window: W or None.
        soft_cap: c or None.
        dropout: share of the weights that is dropped.
        by_distance: whether the bias is given by distance; t then divides s.
    """

    queries: int
    keys: int
    groups: int
    repeats: int
    use_causal_mask: bool
    window: int | None
    soft_cap: float | None
    dropout: float
    by_distance: bool

    def key_range(self, inputs: BlockInputs, i: Tensor) -> tuple[Tensor, Tensor]:
        """The blocks of keys of which query block i sees something: from, to."""
        end = ops.shape(inputs.key)[0]
        if not self.use_causal_mask:
            return 0, end
        last = ops.max(inputs.offset) + (i + 1) * self.queries - 1
        end = ops.clip(last // self.keys + 1, 0, end)
        if self.window is None:
            return 0, end
        first = ops.min(inputs.offset) + i * self.queries - self.window + 1
        return ops.clip(first // self.keys, 0, end), end

    def query_range(self, inputs: BlockInputs, j: Tensor) -> tuple[Tensor, Tensor]:
        """The blocks of queries that see something of key block j: from, to."""
        end = ops.shape(inputs.query)[0]
        if not self.use_causal_mask:
            return 0, end
        first = j * self.keys - ops.max(inputs.offset)
        start = ops.clip(first // self.queries, 0, end)
        if self.window is None:
            return start, end
        last = (j + 1) * self.keys - 2 + self.window - ops.min(inputs.offset)
        return start, ops.clip(last // self.queries + 1, start, end)

    def visible(self, inputs: BlockInputs, i: Tensor, j: Tensor) -> Tensor | None:
        """Which pairs of block (i, j) see each other, for `(B, G, R, t, s)`.

        None stands for all of them.
        """
        rows, columns = self.places(i, j)
        query_mask, value_mask = inputs.query_mask, inputs.value_mask
        attention_mask = inputs.attention_mask
        causal = None
        if self.use_causal_mask:
            positions = query_positions(inputs.offset, rows)
            causal = causal_mask(positions, columns, self.window)
        if query_mask is not None:
            shape = (ops.shape(query_mask)[0], self.queries)
            query_mask = ops.slice(query_mask, (0, i * self.queries), shape)
        if value_mask is not None:
            shape = (ops.shape(value_mask)[0], self.keys)
            value_mask = ops.slice(value_mask, (0, j * self.keys), shape)
        mask = combine_masks(
            query_mask=query_mask, value_mask=value_mask, causal_mask=causal
        )
        if mask is not None:
            mask = mask[:, None, None]  # (B, 1, 1, t, s)
        if attention_mask is not None:
            start = (0, 0, 0, i * self.queries, j * self.keys)
            shape = (*ops.shape(attention_mask)[:3], self.queries, self.keys)
            block = ops.slice(attention_mask, start, shape)
            mask = block if mask is None else ops.logical_and(mask, block)
        return mask

    def scores(
        self,
        inputs: BlockInputs,
        biases: Buffer | None,
        product: Tensor,
        i: Tensor,
        j: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """Scores `(B, G, R, t, s)` of block (i, j), and their slope in `product`.

        `product` is q k^T, `(N, R t, s)`; None stands for a slope of 1.
        """
        scores, slope = self.by_pair(product), None
        if self.soft_cap is not None:
            capped = ops.tanh(scores / self.soft_cap)
            scores, slope = self.soft_cap * capped, 1 - ops.square(capped)
        if biases is not None:
            scores += self.spread(biases.read(self.bias_index(inputs, i, j)))
        return scores, slope

    def dropped(
        self, inputs: BlockInputs, weights: Tensor, i: Tensor, j: Tensor
    ) -> Tensor:
        """Dropout of the weights `(B, G, R, t, s)` of block (i, j)."""
        if not self.dropout:
            return weights
        kept = self._kept(inputs, i, j)
        return ops.where(kept, weights / (1 - self.dropout), 0.0)

    def by_pair(self, x: Tensor) -> Tensor:
        """`(N, R t, n)` as `(B, G, R, t, n)`."""
        shape = (-1, self.groups, self.repeats, self.queries, x.shape[-1])
        return ops.reshape(x, shape)

    def by_row(self, x: Tensor) -> Tensor:
        """`(B, G, R, t, n)` as `(N, R t, n)`."""
        return ops.reshape(x, (-1, self.repeats * self.queries, x.shape[-1]))

    def bias_index(self, inputs: BlockInputs, i: Tensor, j: Tensor) -> Tensor:
        """Where the bias of block (i, j) is."""
        if self.by_distance:
            return j * (self.keys // self.queries) - i + ops.shape(inputs.query)[0] - 1
        return i * ops.shape(inputs.key)[0] + j

    def spread(self, bias: Tensor) -> Tensor:
        """A bias as it was read, for the pairs of its block: `(B*, G*, R*, t, s)`.

        By distance the rows are one another's, moved by one: with a line of t + s
        read again and again, and a row taken after every t + s - 1 entries, each
        row starts an entry earlier than the one before it.
        """
        if not self.by_distance:
            return bias
        t, line = self.queries, self.queries + self.keys - 1
        head = ops.shape(bias)[:3]
        bias = ops.pad(bias, [[0, 0]] * 4 + [[0, 1]])
        bias = ops.broadcast_to(bias, (*head, t, line + 1))
        bias = ops.reshape(bias, (*head, t * (line + 1)))[..., : t * line]
        return ops.reshape(bias, (*head, t, line))[..., t - 1 :]

    def gathered(self, d_scores: Tensor, bias_shape: Shape) -> Tensor:
        """The gradient of a bias as it was read: `spread` the other way."""
        if self.by_distance:
            t, line = self.queries, self.queries + self.keys - 1
            d_scores = ops.sum(d_scores, axis=0, keepdims=True)
            head = ops.shape(d_scores)[:3]
            d_scores = ops.pad(d_scores, [[0, 0]] * 4 + [[t - 1, 0]])
            d_scores = ops.reshape(d_scores, (*head, t * line))
            d_scores = ops.pad(d_scores, [[0, 0]] * 3 + [[0, t]])
            d_scores = ops.reshape(d_scores, (*head, t, line + 1))
            return ops.sum(d_scores, axis=3, keepdims=True)[..., :line]
        shared = [axis for axis in range(3) if bias_shape[axis] == 1]
        return ops.sum(d_scores, axis=shared, keepdims=True) if shared else d_scores

    def places(self, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of the queries and of the keys in block (i, j)."""
        rows = i * self.queries + ops.arange(self.queries)
        return rows, j * self.keys + ops.arange(self.keys)

    def _kept(self, inputs: BlockInputs, i: Tensor, j: Tensor) -> Tensor:
        rows, columns = self.places(i, j)
        heads = ops.arange(ops.shape(inputs.key)[1] * self.repeats)
        heads = ops.reshape(heads, (-1, self.groups, self.repeats, 1, 1))
        rows = query_positions(inputs.offset, rows)[:, None, None, :, None]
        return kept_places(inputs.seed, self.dropout, heads, rows, columns)
