"""Whether a model looks ahead."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import message
from kseq.backend import compiled
from kseq.diagnostics.chosen_input import chosen_input
from kseq.diagnostics.layer_calls import layer_calls, leaking_layer
from kseq.diagnostics.leak_report import LeakReport
from kseq.diagnostics.other_values import check_some_finite, other_values
from kseq.diagnostics.same_state import same_state

_RULE = "a later input"


def check_causality(
    model: keras.Layer,
    x: Any,
    *,
    key: Any = None,
    training: bool | None = None,
) -> LeakReport:
    """Checks that no output depends on an input that comes later.

    For every position t the inputs after t are exchanged for others. Each output
    up to t must stay the same, bit for bit. That finds a missing or shifted mask, a
    layer that runs the wrong way, and statistics over time. It needs no gradient,
    so ids are checked as well as features.

    Args:
        model: a built model or layer.
        x: one small batch of its inputs, as `model.predict` takes it. Ids must have
            two different values at least.
        key: which of several inputs is checked: its name in a dictionary or its place
            in a list, such as `"target_ids"` of an encoder-decoder. Defaults to
            `None`, for a model with one input.
        training: bool. The mode to check; in training a normalization over batch and
            time leaks that doesn't otherwise. Dropout is the same in every run.
            None checks both. Defaults to `None`.

    Returns:
        `LeakReport`: false if something leaks, then it names the first output
        that changed, the input and the layer that changed it.

    Raises:
        ValueError: `` `key` must choose one of the inputs... `` and
            `` The outputs must have the time axis of the inputs... `` (others beside
            them are not looked at) and `` The outputs must be finite... ``

    Example:

    >>> x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")
    >>> layer = kseq.layers.GRU(4, return_sequences=True)
    >>> model = keras.Sequential([keras.Input((5, 3)), layer])
    >>> assert kseq.diagnostics.check_causality(model, x)
    >>> convolution = keras.layers.Conv1D(4, 3, padding="same", name="conv")
    >>> model = keras.Sequential(
    ...     [keras.Input((5, 3)), layer, convolution], name="model")
    >>> report = kseq.diagnostics.check_causality(model, x, training=False)
    >>> report.output_position, report.input_position, report.layer
    (0, 1, 'model/conv')
    """
    values, rebuild = chosen_input(x, key)
    other = other_values("x", values)
    for mode in (False, True) if training is None else (training,):
        report = _Check(model, values, other, rebuild, mode).report()
        if not report:
            return report
    return LeakReport(True, _RULE)


class _Check:
    """One mode of a model, on `values` and `other`, of which `rebuild` makes inputs."""

    def __init__(
        self,
        model: keras.Layer,
        values: np.ndarray,
        other: np.ndarray,
        rebuild: Callable[[np.ndarray], Any],
        training: bool,
    ) -> None:
        self.model = model
        self.values = values
        self.other = other
        self.rebuild = rebuild
        self.training = training
        self.length = values.shape[1]
        self.places = np.arange(self.length).reshape(1, -1, *(1,) * (values.ndim - 2))
        self.forward = compiled(
            lambda x: model(x, training=training), model.variables, jit_compile=False
        )

    def report(self) -> LeakReport:
        """The first leak, if there is one."""
        outputs = self.run(self.places < 0)
        if not outputs:
            raise ValueError(
                message(
                    "The outputs must have the time axis of the inputs, the second "
                    "one.",
                    fix="`return_sequences=True` keeps it.",
                    inputs_shape=self.values.shape,
                )
            )
        check_some_finite(outputs)
        for t in range(self.length - 1):
            change = _first_change(outputs, self.run(self.places > t), t)
            if change is None:
                continue
            position, difference = change
            alone = (
                u
                for u in range(t + 1, self.length)
                if _first_change(outputs, self.run(self.places == u), position)
            )
            source, layer = next(alone, None), self.layer(t, position)
            return LeakReport(
                False, _RULE, position, source, layer, self.training, difference
            )
        return LeakReport(True, _RULE)

    def run(self, exchanged: np.ndarray) -> list[np.ndarray]:
        """The outputs with a time axis, with other values where `exchanged` says."""
        x = self.rebuild(np.where(exchanged, self.other, self.values))
        with same_state(self.model):
            outputs = keras.tree.flatten(self.forward(x))
        outputs = [ops.convert_to_numpy(y) for y in outputs]
        return [y for y in outputs if y.shape[1:2] == (self.length,)]

    def layer(self, t: int, position: int) -> str | None:
        """Path of the layer through which inputs after t change that output."""
        runs = []
        for values in (self.values, np.where(self.places > t, self.other, self.values)):
            x = keras.tree.map_structure(ops.convert_to_tensor, self.rebuild(values))
            with same_state(self.model), layer_calls() as calls:
                self.model(x, training=self.training)
            runs.append(calls)

        def changed(before: np.ndarray, after: np.ndarray) -> bool:
            # the second of two axes may as well be features
            if before.ndim < 3 or before.shape[1] != self.length:
                return False
            early = slice(position + 1)
            return not np.array_equal(before[:, early], after[:, early], equal_nan=True)

        return leaking_layer(runs[0], runs[1], changed)


def _first_change(
    outputs: list[np.ndarray], others: list[np.ndarray], last: int
) -> tuple[int, float] | None:
    """The first position up to `last` that differs, and by how much at most."""
    for t in range(last + 1):
        pairs = [(y[:, t], z[:, t]) for y, z in zip(outputs, others, strict=True)]
        if not all(np.array_equal(y, z, equal_nan=True) for y, z in pairs):
            sizes = [np.abs(y.astype("float64") - z).max() for y, z in pairs]
            return t, float(max(sizes))
    return None
