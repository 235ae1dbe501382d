"""Whether padding changes what a model says of real tokens."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import check_mask, check_size, message
from kseq.diagnostics.chosen_input import chosen_input
from kseq.diagnostics.layer_calls import (
    LayerCall,
    all_calls,
    layer_calls,
    leaking_layer,
)
from kseq.diagnostics.leak_report import LeakReport
from kseq.diagnostics.other_values import (
    check_some_finite,
    like_noise,
    other_values,
)
from kseq.diagnostics.same_state import same_state

_RULE = "padding"
_ROUNDING = {2: 0.1, 4: 3e-4, 8: 1e-8}  # relative, by the bytes of a number


def check_padding(
    model: keras.Layer,
    x: Any,
    mask: Any,
    *,
    key: Any = None,
    append: int = 3,
    training: bool | None = None,
) -> LeakReport:
    """Checks that no output of a real token depends on padding.

    What stands at the padding is exchanged for something else, and more padding is
    appended: the outputs of real tokens must stay the same, bit for bit and up to
    rounding. That finds a mask that was dropped on its way, sums, means and
    statistics over padding, and a layer that runs through it.

    A model finds its mask in its inputs, so these stay as they are where a layer makes
    the mask of them: what is exchanged is what an `Embedding` makes of a padded
    id, and what a `Masking` lets through. Elsewhere it is the input.

    Args:
        model: a built model or layer.
        x: one small batch of its inputs with padding, as `model.predict` takes it.
        mask: bool `(B, T)`. True is a real token.
        key: which of several inputs is padded: its name in a dictionary or its place
            in a list. All inputs `(B, T, ...)` grow when padding is appended. Defaults
            to `None`, for a model with one input.
        append: int. Steps of padding to append, in inference, where the inputs of the
            model may have any length; 0 appends none, as a model needs that has no more
            learned positions. Defaults to `3`.
        training: bool. The mode to check; None checks both. Defaults to `None`.

    Returns:
        `LeakReport`: false if something leaks, then it names the first real output
        that changed, the padding and the layer that changed it. An output `(B, T)` or
        `(B, T, ...)` is one for each token, any other one for the whole row.

    Raises:
        TypeError: `` `mask` must be boolean. ``
        ValueError: `` `mask` must have the shape (B, T) of the input... ``

    Example:

    >>> ids = np.array([[3, 5, 4, 0, 0], [6, 3, 7, 5, 4]])
    >>> layers = [kseq.layers.Embedding(9, 4, mask_zero=True),
    ...           keras.layers.GlobalAveragePooling1D(name="mean")]
    >>> model = keras.Sequential([keras.Input((None,), dtype="int32"), *layers])
    >>> assert kseq.diagnostics.check_padding(model, ids, ids != 0)
    >>> layers[0] = kseq.layers.Embedding(9, 4)
    >>> model = keras.Sequential([keras.Input((None,), dtype="int32"), *layers])
    >>> report = kseq.diagnostics.check_padding(model, ids, ids != 0)
    >>> report.layer, report.input_position
    ('mean', 3)
    """
    values, rebuild = chosen_input(x, key)
    mask = np.asarray(check_mask("mask", mask))
    if mask.shape != values.shape[:2] or mask.all() or not mask.any():
        raise ValueError(
            message(
                "`mask` must have the shape (B, T) of the input, True and False in it.",
                mask=mask.shape,
                input=values.shape,
                real=f"{mask.sum()} of {mask.size}",
            )
        )
    if append:
        check_size("append", append)
    for mode in (False, True) if training is None else (training,):
        check = _Check(model, values, rebuild, mask, mode)
        report = check.exchanged()
        if report and append and not mode and _takes_any_length(model):
            report = check.appended(append)
        if not report:
            return report
    return LeakReport(True, _RULE)


class _Check:
    """One mode of a model, on `values`, of which `rebuild` makes inputs."""

    def __init__(
        self,
        model: keras.Layer,
        values: np.ndarray,
        rebuild: Callable[[np.ndarray], Any],
        mask: np.ndarray,
        training: bool,
    ) -> None:
        self.model = model
        self.values = values
        self.rebuild = rebuild
        self.mask = mask
        self.training = training
        self.outputs, self.calls = self.run(rebuild(values))
        check_some_finite(self.outputs)
        first = (
            keras.layers.Embedding
            if values.dtype.kind in "iu"
            else keras.layers.Masking
        )
        self.first_layers = [
            call.layer
            for call in all_calls(self.calls)
            if isinstance(call.layer, first)
            and any(np.array_equal(values, given) for given in call.inputs)
        ]

    def run(
        self, x: Any, layers: Sequence[keras.Layer] = (), padding: Any = None
    ) -> tuple[list[np.ndarray], list[LayerCall]]:
        """Outputs and calls, where `layers` say something else at `padding`."""
        x = keras.tree.map_structure(ops.convert_to_tensor, x)
        with ExitStack() as stack:
            stack.enter_context(same_state(self.model))
            for layer in layers:
                stack.enter_context(_changed_outputs(layer, padding))
            calls = stack.enter_context(layer_calls())
            outputs = keras.tree.flatten(self.model(x, training=self.training))
        return [ops.convert_to_numpy(y) for y in outputs], calls

    def exchanged(self) -> LeakReport:
        """Whether what stands at the padding changes an output."""
        padding = ~self.mask
        outputs, calls = self._run_with(padding)
        change = self._change(outputs)
        if change is None:
            return LeakReport(True, _RULE)
        steps = np.arange(self.mask.shape[1])
        alone = (
            int(u)
            for u in steps[padding.any(axis=0)]
            if self._change(self._run_with(padding & (steps == u))[0])
        )
        return self._report(change, next(alone, None), calls)

    def appended(self, count: int) -> LeakReport:
        """Whether more padding changes an output, by more than rounding."""
        kept = self.mask.shape

        def longer(leaf: Any) -> np.ndarray:
            leaf = np.asarray(leaf)
            if leaf.shape[:2] != kept:
                return leaf
            padding = leaf[~self.mask][:1]  # as what is there
            padding = np.broadcast_to(padding, (kept[0], count, *leaf.shape[2:]))
            return np.concatenate([leaf, padding], axis=1)

        x = keras.tree.map_structure(longer, self.rebuild(self.values))
        outputs, calls = self.run(x)
        change = self._change(outputs, rounding=True)
        if change is None:
            return LeakReport(True, _RULE)
        return self._report(change, kept[1], calls, rounding=True)

    def _run_with(self, padding: np.ndarray) -> Any:
        """A run with something else where `padding` says."""
        if self.first_layers:
            return self.run(self.rebuild(self.values), self.first_layers, padding)
        places = padding.reshape(*padding.shape, *(1,) * (self.values.ndim - 2))
        other = np.where(places, other_values("x", self.values), self.values)
        return self.run(self.rebuild(other))

    def _change(
        self, outputs: list[np.ndarray], rounding: bool = False
    ) -> tuple[int | None, float] | None:
        """The first real output that differs and by how much at most, or None."""
        for y, z in zip(self.outputs, outputs, strict=True):
            difference = self._difference(y, z, rounding)
            if not difference.any():
                continue
            position = None
            if y.shape[:2] == self.mask.shape:
                by_step = difference.reshape(*self.mask.shape, -1).max(axis=(0, 2))
                position = int(by_step.nonzero()[0][0])
            return position, float(difference.max())
        return None

    def _report(
        self,
        change: tuple[int | None, float],
        source: int | None,
        calls: list[LayerCall],
        rounding: bool = False,
    ) -> LeakReport:
        def changed(before: np.ndarray, after: np.ndarray) -> bool:
            # of what has other axes nobody knows which are positions
            judged = before.ndim == 2 or before.shape[:2] == self.mask.shape
            return judged and bool(self._difference(before, after, rounding).any())

        layer = leaking_layer(self.calls, calls, changed)
        position, difference = change
        return LeakReport(
            False, _RULE, position, source, layer, self.training, difference
        )

    def _difference(self, y: np.ndarray, z: np.ndarray, rounding: bool) -> np.ndarray:
        """How far `z` is from `y`, with 0 where that says nothing of real tokens."""
        per_token = y.shape[:2] == self.mask.shape
        if per_token:
            z = z[:, : y.shape[1]]
        if y.shape != z.shape:
            return np.zeros(1)
        allowed = 0.0
        if rounding and "float" in str(y.dtype):
            # a longer product is summed in another order
            allowed = _ROUNDING[y.dtype.itemsize]
        y, z = y.astype("float64"), z.astype("float64")
        allowed *= float(np.abs(y).max(initial=0.0))
        difference = np.where(
            (y == z) | (np.isnan(y) & np.isnan(z)), 0.0, np.abs(y - z)
        )
        difference = np.where(
            difference <= allowed, 0.0, np.nan_to_num(difference, nan=np.inf)
        )
        # a row of padding says nothing either
        real = self.mask if per_token else self.mask.any(axis=1)
        if y.shape[: real.ndim] != real.shape:
            return difference
        return np.where(
            real.reshape(*real.shape, *(1,) * (y.ndim - real.ndim)), difference, 0.0
        )


@contextmanager
def _changed_outputs(layer: keras.Layer, padding: np.ndarray) -> Iterator[None]:
    """Has `layer` say something else at `padding`, with the mask that it had."""
    call = layer.call

    def changed(*args: Any, **kwargs: Any) -> Any:
        outputs = call(*args, **kwargs)
        if outputs.shape[:2] != padding.shape:
            return outputs
        values = ops.convert_to_numpy(outputs)
        noise = like_noise(values, np.random.default_rng(0))
        return ops.where(padding[..., None], values + noise, outputs)

    layer.call = changed
    try:
        yield
    finally:
        del layer.call


def _takes_any_length(model: keras.Layer) -> bool:
    inputs = keras.tree.flatten(getattr(model, "inputs", None) or [])
    return all(len(x.shape) < 2 or x.shape[1] is None for x in inputs)
