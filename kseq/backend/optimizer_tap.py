"""Reads a value off every optimizer step, compiled or not."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from kseq._typing import Tensor
from kseq.backend.half import half
from kseq.backend.replicas import sum_over_replicas

Measure = Callable[[Sequence[Tensor | None], Sequence[keras.Variable]], Tensor]
_NAME = "_kseq_optimizer_tap"


class Record(NamedTuple):
    """One training step: `optimizer.iterations` after it, what `measure` returned."""

    step: int
    values: np.ndarray


class OptimizerTap:
    """Runs `measure(gradients, variables)` inside each training step of `model`.

    `measure` sees the gradients as the optimizer gets them (scaled, unclipped,
    summed over replicas) and returns a float32 vector of `width` numbers. It is
    compiled into the step and may read the optimizer's variables.

    The tap replaces methods of the model and of its optimizer on these two
    instances and has the training function built anew; no variable is added to
    either. `remove` puts everything back. A tap that an interrupted `fit` left
    behind is removed by the next one on the same model.

    Install it after the model's training function is made: in `on_train_begin`.

    Args:
        model: a compiled and built model.
        measure: see above.
        width: int. Length of the vector that `measure` returns.
        capacity: int. Steps kept between two `take`; older ones are dropped.
    """

    def __init__(
        self, model: keras.Model, measure: Measure, width: int, capacity: int
    ) -> None:
        left_behind = getattr(model, _NAME, None)
        if left_behind is not None:
            left_behind.remove()
        self._model = model
        self._patches = ExitStack()
        self._patches.enter_context(_replaced(model, _NAME, self))
        install = half(tensorflow=_tap_tensorflow, jax=_tap_jax)
        self._read = install(model, measure, width, capacity, self._patches)

    @property
    def installed(self) -> bool:
        """Whether it is this tap that the training step of the model runs."""
        return getattr(self._model, _NAME, None) is self

    def take(self) -> list[Record]:
        """Returns the records since the last `take`, oldest first."""
        if not self.installed:
            raise RuntimeError(
                "`fit` takes one callback that reads the optimizer's steps at a time, "
                "and got two. Pass one GradientNorms."
            )
        return self._read()

    def remove(self) -> None:
        """Puts the model and its optimizer back as they were."""
        self._patches.close()
        self._model.make_train_function(force=True)


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Gives the instance `owner` another `name` while the block runs."""
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)
        if own is not None:
            setattr(owner, name, own)


def _tap_tensorflow(
    model: keras.Model,
    measure: Measure,
    width: int,
    capacity: int,
    patches: ExitStack,
) -> Callable[[], list[Record]]:
    """`apply` writes to variables of the tap: they cross XLA and `tf.while_loop`."""
    import tensorflow as tf

    optimizer = model.optimizer
    apply = optimizer.apply

    def variable(shape: tuple[int, ...], dtype: str) -> tf.Variable:
        return tf.Variable(
            tf.zeros(shape, dtype),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    with model.distribute_strategy.scope():
        count = variable((), "int64")
        steps = variable((capacity,), "int64")
        values = variable((capacity, width), "float32")

    def push(rows: tf.Variable, row: tf.Tensor) -> None:
        rows.assign(tf.concat([rows[1:], row[None]], axis=0))

    def tapped_apply(grads: Any, trainable_variables: Any = None) -> None:
        grads = list(grads)
        variables = list(trainable_variables or model.trainable_variables)
        # equal indices of IndexedSlices add up only in the dense tensor
        dense = [g if g is None else tf.convert_to_tensor(g) for g in grads]
        row = measure(
            [g if g is None else sum_over_replicas(g) for g in dense], variables
        )
        apply(grads, variables)
        push(values, row)
        push(steps, ops.cast(optimizer.iterations, "int64"))
        count.assign_add(1)

    patches.enter_context(_replaced(optimizer, "apply", tapped_apply))
    model.make_train_function(force=True)
    taken = 0

    def read() -> list[Record]:
        nonlocal taken
        total = int(count.numpy())
        first = max(capacity - (total - taken), 0)
        taken = total
        rows = zip(steps.numpy()[first:], values.numpy()[first:], strict=True)
        return [Record(int(step), row) for step, row in rows]

    return read


def _tap_jax(
    model: keras.Model,
    measure: Measure,
    width: int,
    capacity: int,
    patches: ExitStack,
) -> Callable[[], list[Record]]:
    """`train_step` returns the row in its logs, `train_function` takes it out again."""
    optimizer = model.optimizer
    stateless_apply, train_step = optimizer.stateless_apply, model.train_step
    traced: list[Any] = []
    taken: deque[Any] = deque(maxlen=capacity)

    def tapped_apply(
        optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        with _optimizer_state(optimizer, optimizer_variables):
            row = measure(grads, model.trainable_variables)
        result = stateless_apply(optimizer_variables, grads, trainable_variables)
        with _optimizer_state(optimizer, result[1]):
            step = ops.convert_to_tensor(optimizer.iterations)
        traced.append((step, row))
        return result

    def tapped_step(state: Any, data: Any) -> Any:
        traced.clear()
        logs, state = train_step(state, data)
        logs = {**logs, _NAME: list(traced)}
        traced.clear()
        return logs, state

    def tapped_function(state: Any, iterator: Any) -> Any:
        # one inner step at a time: of several, Keras returns the last one's logs
        logs = None
        for data in islice(iterator, model.steps_per_execution):
            logs, state = train_function(state, iter((data,)))
            taken.extend(logs.pop(_NAME))
        if logs is None:
            raise StopIteration
        return logs, state

    patches.enter_context(_replaced(optimizer, "stateless_apply", tapped_apply))
    patches.enter_context(_replaced(model, "train_step", tapped_step))
    model.make_train_function(force=True)
    train_function = model.train_function
    model.train_function = tapped_function

    def read() -> list[Record]:
        records = [Record(int(step), np.asarray(row)) for step, row in taken]
        taken.clear()
        return records

    return read


def _optimizer_state(
    optimizer: keras.optimizers.Optimizer, values: Any
) -> keras.StatelessScope:
    return keras.StatelessScope(list(zip(optimizer.variables, values, strict=True)))
