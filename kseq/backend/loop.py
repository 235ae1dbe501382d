"""A loop whose body reads and writes buffers, in place under XLA.

XLA writes a buffer in place when every reader of its old content is needed for
the new content. Any other reader makes it copy the whole buffer at every step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from kseq._typing import Tensor
from kseq.backend.half import half

Tree = Any  # nested lists, tuples and dictionaries of tensors and buffers
Buffer = Any  # has `read(t)` and `write(t, value)`, which returns the new buffer


def loop(length: Tensor, body: Callable[..., Tree], init: Tree) -> Tree:
    """Runs `state = body(k, *state)` for k = 0 .. length - 1, from `init`.

    `init` is a list of trees of tensors and buffers, and `body` returns the like.
    A loop has no gradient: see `kseq.backend.custom_gradient`.
    """
    return half(tensorflow=_tensorflow_loop, jax=_jax_loop)(length, body, init)


def filled(values: Tensor) -> Buffer:
    """A buffer with the rows of `values` `(T, ...)`."""
    return half(tensorflow=_tensorflow_filled, jax=JaxBuffer)(values)


def empty(length: Tensor, like: Tensor) -> Buffer:
    """A buffer for `length` tensors shaped like `like`, each of which is written."""
    return half(tensorflow=_tensorflow_empty, jax=_jax_empty)(length, like)


def stacked(buffer: Buffer, length: Tensor) -> Tensor:
    """The rows of a buffer as one tensor `(T, ...)`; `length` is T."""
    return half(tensorflow=_tensorflow_stacked, jax=_jax_stacked)(buffer, length)


def _tensorflow_loop(length: Tensor, body: Callable[..., Tree], init: Tree) -> Tree:
    import tensorflow as tf

    if tf.executing_eagerly():
        state = init
        for k in range(int(length)):
            state = body(k, *state)
        return state

    def like(new: Any, old: Any) -> Any:
        # a loop variable keeps its static shape
        return tf.ensure_shape(new, old.shape) if tf.is_tensor(new) else new

    def step(k: Tensor, *state: Tree) -> tuple[Tree, ...]:
        new = tf.nest.map_structure(like, list(body(k, *state)), list(state))
        return (k + 1, *new)

    _, *state = tf.while_loop(
        lambda k, *_: k < length,
        tf.autograph.experimental.do_not_convert(step),
        (tf.constant(0), *init),
        maximum_iterations=length,
    )
    return state


def _tensorflow_filled(values: Tensor) -> Buffer:
    import tensorflow as tf

    buffer = tf.TensorArray(
        values.dtype,
        size=tf.shape(values)[0],
        element_shape=values.shape[1:],
        clear_after_read=False,
    )
    return buffer.unstack(values)


def _tensorflow_empty(length: Tensor, like: Tensor) -> Buffer:
    import tensorflow as tf

    return tf.TensorArray(
        like.dtype, size=length, element_shape=like.shape, clear_after_read=False
    )


def _tensorflow_stacked(buffer: Buffer, length: Tensor) -> Tensor:
    values = buffer.stack()  # forgets how many there are
    if isinstance(length, int):
        values.set_shape([length, *values.shape[1:]])
    return values


class JaxBuffer(NamedTuple):
    """An array that is read and written a row at a time."""

    values: Any

    def read(self, t: Tensor) -> Tensor:
        """Row t."""
        import jax

        return jax.lax.dynamic_index_in_dim(self.values, t, keepdims=False)

    def write(self, t: Tensor, value: Tensor) -> Buffer:
        """The buffer with `value` as its row t."""
        import jax

        values = jax.lax.dynamic_update_index_in_dim(self.values, value, t, axis=0)
        return JaxBuffer(values)


def _jax_loop(length: int, body: Callable[..., Tree], init: Tree) -> Tree:
    import jax

    return jax.lax.fori_loop(0, length, lambda k, state: list(body(k, *state)), init)


def _jax_empty(length: int, like: Tensor) -> Buffer:
    import jax.numpy as jnp

    return JaxBuffer(jnp.zeros((length, *like.shape), like.dtype))


def _jax_stacked(buffer: Buffer, length: int) -> Tensor:
    del length
    return buffer.values
