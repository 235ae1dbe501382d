"""The norms of the training gradients, step by step."""

import atexit
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.backend.optimizer_tap import OptimizerTap
from kseq.callbacks.event_callback import EventCallback
from kseq.diagnostics.gradient_norms import gradient_norms, layer_path

Gradients = Sequence[Tensor | None]
Variables = Sequence[keras.Variable]
# training batches, and seconds, between two reads: each read waits for the device
_READ_EVERY = 64
_READ_AFTER = 10.0


class GradientNorms(EventCallback):
    """Writes the gradient norms of the training steps for TensorBoard.

    With g_v the gradient that a training step hands to the optimizer for variable
    v, before clipping, any loss scale removed:

        gradient_norm/global       = sqrt(sum over v of |g_v|^2)
        gradient_norm/<layer path> = the same over the variables of one layer

    For the dashboard **Sequences**, which comes with kseq, a record of its own holds
    the norms of all layers, in the order in which Keras lists them, that of the
    layers of a functional model.

    The norms are computed inside the compiled training step, from the gradients it
    uses anyway, for every step, also within `steps_per_execution`. Under
    `gradient_accumulation_steps` they are those of each micro-batch, not of the
    update. Under `tf.distribute` they are those of the sum over replicas, at the
    price of a second all-reduce. The step of a record is `optimizer.iterations`
    after it, the number of updates so far: 1 for the first.

    With a `keras.optimizers.LossScaleOptimizer`, `gradient_norm/skipped` is 1 for a
    step that was dropped because a gradient was not finite, and 0 otherwise. A
    dropped step is no update, so it shares its number with the step before; its
    norms are written as they are, nan or infinite in the layers that overflowed.

    Records reach the file every 64 batches or 10 seconds, and when the program ends,
    by an error or by Ctrl-C too. A step has 4 bytes a layer and 80 more for the
    dashboard, and some 75 a layer for the page Scalars.

    Weights, outputs, optimizer state, saved files and logs are those of a training
    without the callback. One `GradientNorms` per `fit`. The training function is
    traced anew in each `fit` that has one, and in the next `fit` without.

    Args:
        log_dir: the `log_dir` of `keras.callbacks.TensorBoard`, a local directory.
            The records go to `<log_dir>/kseq`.
        every: int. Writes the steps that are multiples of it. Defaults to `1`.

    Raises:
        ImportError: if `tensorboard` is not installed.
        ValueError: when training begins, if the model is not built (on TensorFlow;
            on JAX, Keras builds it before).

    Example:

    >>> import os, tempfile
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> model.compile("sgd", "mse")
    >>> with tempfile.TemporaryDirectory() as log_dir:
    ...     callback = kseq.callbacks.GradientNorms(log_dir)
    ...     x, y = np.ones((4, 3)), np.ones((4, 2))
    ...     history = model.fit(x, y, verbose=0, callbacks=[callback])
    ...     os.listdir(log_dir)
    ['kseq']
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self.model.built:
            raise ValueError(
                message(
                    "`model` must be built before its training begins.",
                    fix="Call it once on a batch.",
                    model=self.model.name,
                )
            )
        layers = list(dict.fromkeys(map(layer_path, self.model.trainable_variables)))
        self._layers = layers
        names = ["global", *layers]
        measure = partial(_norms, self.model.optimizer, layers)
        if isinstance(self.model.optimizer, keras.optimizers.LossScaleOptimizer):
            names.append("skipped")
            measure = partial(_norms_and_skipped, self.model.optimizer, layers)
        self._tags = [f"gradient_norm/{name}" for name in names]
        self._tap = OptimizerTap(
            self.model,
            measure,
            width=len(self._tags),
            capacity=_READ_EVERY * self.model.steps_per_execution,
        )
        self._batches, self._read_at = 0, time.monotonic()
        # Keras tells no callback of an error that ends the training
        atexit.register(self._write_rest)

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        # not at the batch's end: there, JAX would wait for the device at each step
        late = time.monotonic() - self._read_at > _READ_AFTER
        if self._batches == _READ_EVERY or late:
            self._write()
        self._batches += 1

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._write()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        atexit.unregister(self._write_rest)
        self._tap.remove()
        super().on_train_end(logs)

    def _write_rest(self) -> None:
        # the next `fit` takes the tap of an interrupted one away
        if self._tap.installed:
            self._write()

    def _write(self) -> None:
        self._batches, self._read_at = 0, time.monotonic()
        for record in self._tap.take():
            if record.step % self.every:
                continue
            values = dict(zip(self._tags, record.values, strict=True))
            self.writer.scalars(values, record.step)
            self.writer.tensor(
                "gradient_norm",
                record.values[1 : 1 + len(self._layers)],
                record.step,
                plugin="kseq_gradients",
                content={"v": 1, "layers": self._layers},
            )
        self.writer.flush()


def _norms(
    optimizer: keras.optimizers.Optimizer,
    layers: list[str],
    gradients: Gradients,
    variables: Variables,
) -> Tensor:
    scale = optimizer.loss_scale_factor or 1.0
    return gradient_norms(gradients, variables, layers, scale)


def _norms_and_skipped(
    optimizer: keras.optimizers.LossScaleOptimizer,
    layers: list[str],
    gradients: Gradients,
    variables: Variables,
) -> Tensor:
    # an optimizer that is not built yet scales by what it begins with
    scale = optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale
    norms = gradient_norms(gradients, variables, layers, scale)
    skipped = ops.logical_not(optimizer.check_finite(gradients))
    return ops.append(norms, ops.cast(skipped, "float32"))
