"""Truncated backpropagation through time: long sequences, window by window."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from kseq._checks import check_size, message


def truncated_bptt(
    model: keras.Model,
    x: Any,
    y: Any,
    *,
    window: int,
    batch_size: int,
    epochs: int = 1,
    sample_weight: Any = None,
    validation_data: Sequence[Any] | None = None,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    verbose: Any = "auto",
    initial_epoch: int = 0,
    validation_freq: Any = 1,
) -> keras.callbacks.History:
    """Trains a stateful model by truncated backpropagation through time.

        s_0 = 0;  s_{w+1}, loss_w = model(s_w, x_w, y_w)
        weights = weights - update(d loss_w / d weights),  s_w held constant

    x_w are the steps of window w. The state goes on from window to window, the
    gradient does not: it reaches back over one window, and there is one update a
    window. The weights change between windows, so s_w is the state that the weights
    of its time left behind, as in the papers. `window=T` is ordinary
    backpropagation.

    `batch_size` rows run through all their windows, then the next rows. The layers
    with `stateful=True` carry the states, which are set to zeros before the first
    window of each group of rows, and at the end. All is done by `model.fit`. Batches
    are not shuffled; shuffle the rows yourself.

    Args:
        model: a compiled model with at least one layer that is `stateful=True`, and
            `keras.Input(batch_shape=(batch_size, None, ...))`. On TensorFlow it may be
            a layer of Keras; on JAX those forget their states.
        x: array `(N, T, ...)`, or a tree of such arrays.
        y: array `(N, T, ...)`, or a tree of such arrays.
        window: int. Steps of a window. Where it does not divide T, the first window
            of each row is the shorter one, which makes one more program. (The last
            one can't be: on TensorFlow, Keras fixes a length in which the first two
            batches agree.)
        batch_size: int. Rows of every batch; it must divide N.
        epochs: int. Defaults to `1`.
        sample_weight: array `(N, T)`, or None. Defaults to `None`.
        validation_data: `(x, y)` or `(x, y, sample_weight)`, evaluated by the same
            windows, or None. Defaults to `None`.
        callbacks: list of callbacks, as in `fit`. Defaults to `None`.
        verbose: as in `fit`. Defaults to `"auto"`.
        initial_epoch: as in `fit`. Defaults to `0`.
        validation_freq: as in `fit`. Defaults to `1`.

    Returns:
        The `keras.callbacks.History` of `fit`.

    Masking: as in the layers; a row that ends early keeps its state to the end. With
        `kseq.training.MaskedCrossentropy`, a window without any real token is a step
        with gradient 0, in which momentum and weight decay still act.

    Raises:
        ValueError: `` `window` must be a positive integer. ``, the same for
            `batch_size`; `` `batch_size` must divide the number of rows N... ``,
            `` All arrays must begin with the same (N, T)... ``,
            `` `validation_data` must be (x, y) or (x, y, sample_weight). ``,
            `` `model` must hold a layer with `stateful=True`... ``,
            `` A stateful layer must run forward in time... ``,
            `` `batch_size` must be the batch size of the stateful layers. ``,
            `` On JAX a stateful layer of Keras forgets its states... `` and
            `` `model` must be compiled with `steps_per_execution=1`... ``

    Example:

    >>> inputs = keras.Input(batch_shape=(2, None, 3))
    >>> h = kseq.layers.GRU(4, stateful=True, return_sequences=True)(inputs)
    >>> model = keras.Model(inputs, keras.layers.Dense(1)(h))
    >>> model.compile("sgd", "mse", jit_compile=True)
    >>> x, y = np.ones((4, 12, 3)), np.ones((4, 12, 1))
    >>> history = kseq.training.truncated_bptt(
    ...     model, x, y, window=6, batch_size=2, verbose=0
    ... )
    >>> int(model.optimizer.iterations)  # 2 groups of rows, 2 windows
    4

    References:
        Williams & Peng, 1990, "An efficient gradient-based algorithm for on-line
        training of recurrent network trajectories", Neural Computation 2.
        Sutskever, 2013, "Training recurrent neural networks", PhD thesis, Toronto.
    """
    train = _Windows(_without_none(x, y, sample_weight), window, batch_size)
    validation = None
    if validation_data is not None:
        data = _check_validation_data(validation_data)
        validation = _Windows(_without_none(*data), window, batch_size)
    layers = _stateful_layers(model)
    for layer in layers:
        for state in keras.tree.flatten(layer.states):
            if state.shape[0] != batch_size:
                raise ValueError(
                    message(
                        "`batch_size` must be the batch size of the stateful layers.",
                        batch_size=batch_size,
                        layer=layer.name,
                        built_for=state.shape[0],
                    )
                )
    resets = _StateResets(layers, train, validation)
    if model.steps_per_execution != 1:
        raise ValueError(
            message(
                "`model` must be compiled with `steps_per_execution=1`: states are "
                "reset between two steps.",
                steps_per_execution=model.steps_per_execution,
            )
        )
    return model.fit(
        train,
        epochs=epochs,
        verbose=verbose,
        callbacks=[resets, *(callbacks or [])],
        validation_data=validation,
        shuffle=False,
        initial_epoch=initial_epoch,
        validation_freq=validation_freq,
    )


class _Windows(keras.utils.PyDataset):
    """The windows of a group of rows in the order of time, then the next group's."""

    def __init__(self, data: tuple[Any, ...], window: int, batch_size: int) -> None:
        super().__init__()
        self.data = keras.tree.map_structure(np.asarray, data)
        self.batch_size = check_size("batch_size", batch_size)
        window = check_size("window", window)
        rows, steps = self._rows_and_steps()
        self.groups, left_over = divmod(rows, batch_size)
        if left_over:
            raise ValueError(
                message(
                    "`batch_size` must divide the number of rows N, for a stateful "
                    "layer has a static batch size.",
                    batch_size=batch_size,
                    N=rows,
                )
            )
        first = -(-steps % window)  # below 0 where the first window is shorter
        self.spans = [
            slice(max(start, 0), start + window)
            for start in range(first, steps, window)
        ]

    def __len__(self) -> int:
        return self.groups * len(self.spans)

    def __getitem__(self, index: int) -> Any:
        group, span = divmod(index, len(self.spans))
        rows = slice(group * self.batch_size, (group + 1) * self.batch_size)
        return _window(self.data, rows, self.spans[span])

    def begins(self, index: int) -> bool:
        """Whether a batch is the first window of its rows."""
        return index % len(self.spans) == 0

    def _rows_and_steps(self) -> tuple[int, int]:
        shapes = [a.shape for a in keras.tree.flatten(self.data)]
        if len({shape[:2] for shape in shapes}) > 1 or len(shapes[0]) < 2:
            raise ValueError(
                message(
                    "All arrays must begin with the same (N, T): rows and steps.",
                    shapes=shapes,
                )
            )
        return shapes[0][:2]


def _window(data: Any, rows: slice, steps: slice) -> Any:
    """The like of `data`, in tuples for lists: TensorFlow takes no list."""
    if isinstance(data, list | tuple):
        return tuple(_window(item, rows, steps) for item in data)
    if isinstance(data, dict):
        return {key: _window(item, rows, steps) for key, item in data.items()}
    return None if data is None else data[rows, steps]


class _StateResets(keras.callbacks.Callback):
    """Sets the states of `layers` to zeros before the first window of each row."""

    def __init__(
        self,
        layers: Sequence[keras.Layer],
        train: _Windows,
        validation: _Windows | None,
    ) -> None:
        super().__init__()
        self.layers = layers
        self.train = train
        self.validation = validation

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if self.train.begins(batch):
            self._reset()

    def on_test_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if self.validation is not None and self.validation.begins(batch):
            self._reset()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._reset()

    def _reset(self) -> None:
        if keras.backend.backend() == "jax":
            # there `fit` holds the values; it reads the variables again after this
            self.model.jax_state_sync()
        for layer in self.layers:
            layer.reset_state()


def _stateful_layers(model: keras.Model) -> list[keras.Layer]:
    """The stateful layers of `model`, of the models and layers inside it too."""
    # Keras lists the layers inside a layer only here
    layers = [
        layer for layer in model._flatten_layers() if getattr(layer, "stateful", False)
    ]
    if not layers:
        raise ValueError(
            message(
                "`model` must hold a layer with `stateful=True`, which carries the "
                "state from window to window.",
                model=model.name,
            )
        )
    for layer in layers:
        if getattr(layer, "go_backwards", False):
            raise ValueError(
                message(
                    "A stateful layer must run forward in time, as the windows do.",
                    layer=layer.name,
                    go_backwards=True,
                )
            )
        on_jax = keras.backend.backend() == "jax"
        if on_jax and isinstance(layer, keras.layers.RNN):
            # they are no variables of the model, so its functions leave them out
            raise ValueError(
                message(
                    "On JAX a stateful layer of Keras forgets its states in `fit`.",
                    fix="Take the layer of kseq.",
                    layer=layer.name,
                )
            )
    return layers


def _check_validation_data(data: Any) -> Sequence[Any]:
    if not isinstance(data, list | tuple) or len(data) not in (2, 3):
        raise ValueError(
            message(
                "`validation_data` must be (x, y) or (x, y, sample_weight).",
                validation_data=type(data).__name__,
            )
        )
    return data


def _without_none(x: Any, y: Any, sample_weight: Any = None) -> tuple[Any, ...]:
    return (x, y) if sample_weight is None else (x, y, sample_weight)
