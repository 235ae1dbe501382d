"""A loop over time that compiles and has a gradient on every backend.

`keras.ops.scan` has no gradient under XLA on TensorFlow, and a TensorFlow loop
whose forward pass alone is compiled can't hand its TensorLists to a tape
outside. Here the TensorFlow loop keeps the carries as one stacked tensor and
its gradient is a second loop, which recomputes each step from its carry.
"""

from collections.abc import Callable
from typing import Any

import keras

from kseq._typing import Tensor
from kseq.backend.half import half

Tree = Any  # nested lists, tuples and dictionaries of tensors
Step = Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]


def scan(
    step: Step, init: Tree, xs: Tree, constants: Tree = (), *, reverse: bool = False
) -> tuple[Tree, Tree]:
    """Runs `carry, y = step(constants, carry, x)` over the first axis of `xs`.

        carry_0 = init;  carry_t, y_t = step(constants, carry_{t-1}, x_t)

    Args:
        step: function of `(constants, carry, x)`. It is traced, and on
            TensorFlow traced again for the gradient, so it must be a pure
            function of its arguments: a variable that needs a gradient comes in
            through `constants`. The new carry has the old one's structure,
            shapes and dtypes.
        init: tree of tensors, the first carry.
        xs: tree of tensors `(T, ...)`, at least one, `T` the same for all and at
            least 1; it may be unknown until the function runs.
        constants: tree of tensors that every step sees.
        reverse: bool. True runs from the last step to the first; `ys[t]` belongs
            to `xs[t]` all the same. Defaults to `False`.

    Returns:
        The last carry, and the tree of `y` stacked to `(T, ...)`.

    Differentiable once with respect to every floating-point tensor in `init`,
    `xs` and `constants`: eager, in a graph, compiled by XLA with the gradient
    inside, and with the forward pass alone compiled.
    """
    lengths = {leaf.shape[0] for leaf in keras.tree.flatten(xs)} - {None}
    if len(lengths) > 1 or 0 in lengths:
        raise ValueError(
            "Every tensor of `xs` must have the same first size, at least 1. "
            f"Received: {sorted(lengths)}."
        )
    run = half(tensorflow=_tensorflow_scan, jax=_jax_scan)
    return run(step, init, xs, constants, reverse)


def _jax_scan(
    step: Step, init: Tree, xs: Tree, constants: Tree, reverse: bool
) -> tuple[Tree, Tree]:
    import jax

    return jax.lax.scan(
        lambda carry, x: step(constants, carry, x), init, xs, reverse=reverse
    )


def _tensorflow_scan(
    step: Step, init: Tree, xs: Tree, constants: Tree, reverse: bool
) -> tuple[Tree, Tree]:
    import tensorflow as tf

    run = _eager_scan if tf.executing_eagerly() else _graph_scan
    run = tf.autograph.experimental.do_not_convert(run)
    init, xs, constants = tf.nest.map_structure(
        tf.convert_to_tensor, (init, xs, constants)
    )
    return run(step, init, xs, constants, reverse)


def _graph_scan(
    step: Step, init: Tree, xs: Tree, constants: Tree, reverse: bool
) -> tuple[Tree, Tree]:
    """Two `tf.while_loop`s, the second one as the gradient of the first."""
    import tensorflow as tf

    arguments = (init, xs, constants)
    outputs = []  # the one tree of outputs, for its structure

    @tf.custom_gradient
    def run(*leaves: Tensor) -> tuple[list[Tensor], Callable[..., list[Tensor]]]:
        init, xs, constants = tf.nest.pack_sequence_as(arguments, leaves)
        carries, last, ys = _forward_loop(step, init, xs, constants, reverse)
        outputs.append((last, ys))

        def gradient(*upstream: Tensor) -> list[Tensor]:
            pairs = zip(tf.nest.flatten((last, ys)), upstream, strict=True)
            floating = [d for leaf, d in pairs if leaf.dtype.is_floating]
            count = len(_floating(last))
            return _backward_loop(
                step,
                carries,
                xs,
                constants,
                floating[:count],
                floating[count:],
                reverse,
            )

        return tf.nest.flatten((last, ys)), gradient

    flat = run(*tf.nest.flatten(arguments))
    return tf.nest.pack_sequence_as(outputs[0], tf.nest.flatten(flat))


def _eager_scan(
    step: Step, init: Tree, xs: Tree, constants: Tree, reverse: bool
) -> tuple[Tree, Tree]:
    """A Python loop: an outer tape records each step as it runs."""
    import tensorflow as tf

    steps = range(tf.nest.flatten(xs)[0].shape[0])
    carry, ys = init, []
    for t in reversed(steps) if reverse else steps:
        carry, y = step(constants, carry, _at(xs, t))
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *ys)


def _at(tree: Tree, t: Tensor) -> Tree:
    import tensorflow as tf

    return tf.nest.map_structure(lambda leaf: leaf[t], tree)


def _forward_loop(
    step: Step, init: Tree, xs: Tree, constants: Tree, reverse: bool
) -> tuple[Tree, Tree, Tree]:
    """Returns the carry before each step `(T, ...)`, the last carry and `ys`."""
    import tensorflow as tf

    length = tf.shape(tf.nest.flatten(xs)[0])[0]
    _, first_y = step(constants, init, _at(xs, 0))  # for its shapes; pruned

    def write(arrays: Tree, t: Tensor, values: Tree) -> Tree:
        return [
            array.write(t, value)
            for array, value in zip(arrays, tf.nest.flatten(values), strict=True)
        ]

    def body(k: Tensor, carry: Tree, carries: Tree, ys: Tree) -> tuple[Tree, ...]:
        t = length - 1 - k if reverse else k
        new_carry, y = step(constants, carry, _at(xs, t))
        new_carry = _like(new_carry, carry)
        return k + 1, new_carry, write(carries, t, carry), write(ys, t, y)

    _, last, carries, ys = tf.while_loop(
        lambda k, *_: k < length,
        body,
        (tf.constant(0), init, _arrays(init, length), _arrays(first_y, length)),
        maximum_iterations=length,
    )
    static = _static_length(xs)
    return _stack(carries, init, static), last, _stack(ys, first_y, static)


def _backward_loop(
    step: Step,
    carries: Tree,
    xs: Tree,
    constants: Tree,
    d_last: list[Tensor],
    d_ys: list[Tensor],
    reverse: bool,
) -> list[Tensor]:
    """Gradients of every leaf of `(init, xs, constants)`, None for integers.

    `d_last` and `d_ys` are the gradients of the floating-point outputs only.
    """
    import tensorflow as tf

    length = tf.shape(tf.nest.flatten(xs)[0])[0]

    def body(
        k: Tensor, d_carry: list[Tensor], d_xs: list[Tensor], d_constants: list[Tensor]
    ) -> tuple[Tree, ...]:
        t = k if reverse else length - 1 - k
        carry, x = _at(carries, t), _at(xs, t)
        sources = [_floating(carry), _floating(x), _floating(constants)]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            new_carry, y = step(constants, carry, x)
            targets = _floating(new_carry) + _floating(y)
        gradients = tape.gradient(
            targets,
            sources,
            output_gradients=d_carry + _at(d_ys, t),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        gradients = tf.nest.map_structure(tf.convert_to_tensor, gradients)
        return (
            k + 1,
            _like(gradients[0], d_carry),
            [array.write(t, g) for array, g in zip(d_xs, gradients[1], strict=True)],
            [a + g for a, g in zip(d_constants, gradients[2], strict=True)],
        )

    first_x = _floating(_at(xs, 0))
    _, d_init, d_xs, d_constants = tf.while_loop(
        lambda k, *_: k < length,
        body,
        (
            tf.constant(0),
            d_last,
            _arrays(first_x, length),
            [tf.zeros_like(leaf) for leaf in _floating(constants)],
        ),
        maximum_iterations=length,
    )
    d_xs = _stack(d_xs, first_x, _static_length(xs))
    found = iter([*d_init, *d_xs, *d_constants])
    leaves = tf.nest.flatten((carries, xs, constants))
    return [next(found) if leaf.dtype.is_floating else None for leaf in leaves]


def _floating(tree: Tree) -> list[Tensor]:
    import tensorflow as tf

    return [leaf for leaf in tf.nest.flatten(tree) if leaf.dtype.is_floating]


def _arrays(like: Tree, length: Tensor) -> list[Tensor]:
    import tensorflow as tf

    return [
        tf.TensorArray(leaf.dtype, size=length, element_shape=leaf.shape)
        for leaf in tf.nest.flatten(like)
    ]


def _static_length(xs: Tree) -> int | None:
    import tensorflow as tf

    return tf.nest.flatten(xs)[0].shape[0]


def _stack(arrays: list[Tensor], like: Tree, length: int | None) -> Tree:
    import tensorflow as tf

    stacked = [array.stack() for array in arrays]
    for leaf in stacked:  # a loop forgets how many steps it ran
        leaf.set_shape([length, *leaf.shape[1:]])
    return tf.nest.pack_sequence_as(like, stacked)


def _like(new: Tree, old: Tree) -> Tree:
    """Gives `new` the static shapes of `old`, as a loop variable must keep them."""
    import tensorflow as tf

    tf.nest.assert_same_structure(old, new)
    return tf.nest.map_structure(lambda n, o: tf.ensure_shape(n, o.shape), new, old)
