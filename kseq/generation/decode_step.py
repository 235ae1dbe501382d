"""What a model must do to be decoded, token by token."""

from collections.abc import Callable
from typing import Any, Protocol

import keras
from keras import ops

from kseq._typing import Tensor

State = Any  # nested lists, tuples and dictionaries of tensors
Step = Callable[[Tensor, State], tuple[Tensor, State]]


class DecodeStep(Protocol):
    """A model that goes from token to token.

        id_0, state_0 = start(prompt);  logits_t, state_t = step(id_{t-1}, state_{t-1})

    The state is a tree of tensors: caches of keys and values, recurrent states, the
    memory of an encoder. All but scalars have the batch first, and a step changes
    neither structure nor shapes nor dtypes. Every model of `kseq.models` that makes
    tokens is one. One of a user's own needs `start` and `step`, and `variables` with
    what they read, which a Keras model has. One whose prompt is of another vocabulary
    than its tokens says `continues_prompt = False`: filters then see no prompt.


    >>> class Bigrams(keras.Model):
    ...     def __init__(self, vocabulary_size):
    ...         super().__init__()
    ...         self.table = kseq.layers.Embedding(vocabulary_size, vocabulary_size)
    ...         self.table.build()
    ...     def start(self, prompt_ids, max_new_tokens):
    ...         return prompt_ids[:, -1], {}  # nothing to remember
    ...     def step(self, token_ids, state):
    ...         return self.table(token_ids), state
    >>> generated = kseq.generation.generate(
    ...     Bigrams(20), np.array([[4], [7]]), max_new_tokens=5)
    >>> generated.token_ids.shape
    (2, 5)
    """

    variables: list[keras.Variable]

    def start(self, prompt_ids: Tensor, max_new_tokens: int) -> tuple[Tensor, State]:
        """Reads the prompt.

        Args:
            prompt_ids: int `(B, P)`.
            max_new_tokens: int, the most steps that will follow.

        Returns:
            The id `(B,)` that the first step takes, and the state before it.
        """

    def step(self, token_ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits `(B, N)` of what follows `token_ids` `(B,)`, and the new state."""


def read_by_steps(step: Step, token_ids: Tensor, state: State) -> State:
    """The state after all tokens of `token_ids` `(B, T)`, one step each."""
    columns = ops.transpose(token_ids)  # (T, B)

    def body(t: Tensor, state: State) -> tuple[Tensor, State]:
        return t + 1, step(columns[t], state)[1]

    length = token_ids.shape[1]
    start = (ops.convert_to_tensor(0, "int32"), state)
    return ops.while_loop(lambda t, _: t < length, body, start)[1]


def reorder(model: DecodeStep, state: State, rows: Tensor) -> State:
    """The state whose row i is row `rows[i]` of `state`.

    A model that has a method `reorder(state, rows)` does it itself: it may leave alone
    what is the same for all hypotheses of a prompt.
    """
    own = getattr(model, "reorder", None)
    return take_rows(state, rows) if own is None else own(state, rows)


def take_rows(state: State, rows: Tensor) -> State:
    """Row `rows[i]` of `state` as row i, for all of its tensors that are no scalars."""

    def taken(x: Tensor) -> Tensor:
        return ops.take(x, rows, axis=0) if len(x.shape) else x

    return keras.tree.map_structure(taken, state)
