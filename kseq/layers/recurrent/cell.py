"""What the recurrent cells share: weights, dropout, configuration."""

from typing import Any, ClassVar

import keras
from keras import ops

from kseq._checks import check_rate, check_size, message
from kseq._typing import Shape, Tensor
from kseq.ops.affine import affine
from kseq.ops.dropout import dropout
from kseq.ops.gates import Gates
from kseq.ops.recurrence import Lane, recurrence
from kseq.ops.row_blocks import joined, row_blocks


class RecurrentCell(keras.layers.Layer):
    """Base of the cells: `x W + b` for all steps at once, then a step at a time.

    A subclass sets `num_gates`, and computes one step in `step`. (One with a `call` of
    its own is called at every step, as any other Keras cell.) The driver
    (`kseq.layers.RNN`) calls `project` once on the whole sequence and `step` in
    its loop; called alone, a cell does both for one step, as any Keras cell.

    Dropout masks are drawn once per sequence and shared by all its steps and by
    all gates (Gal & Ghahramani, 2016, arXiv:1512.05287). A cell that is called
    alone draws one for each call.
    """

    num_gates: ClassVar[int]

    def __init__(
        self,
        units: int,
        *,
        activation: Any = "tanh",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = check_size("units", units)
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = keras.regularizers.get(recurrent_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.recurrent_constraint = keras.constraints.get(recurrent_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.dropout = check_rate("dropout", dropout)
        self.recurrent_dropout = check_rate("recurrent_dropout", recurrent_dropout)
        self.seed = seed
        if self.dropout or self.recurrent_dropout:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True  # a mask of one step goes by untouched
        self.state_size: int | list[int] = self.units
        self.output_size = self.units

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        if width is None:
            raise ValueError(
                message(
                    "The last axis of the inputs must be known.",
                    input_shape=tuple(input_shape),
                )
            )
        columns = self.num_gates * self.units
        self.kernel = self.add_weight(
            shape=(self.kernel_rows(width), columns),
            name="kernel",
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.add_recurrent_kernel(columns)
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=self.bias_shape(),
                name="bias",
                initializer=self.initial_bias,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def kernel_rows(self, width: int) -> int:
        """How many of the `width` inputs a column of the kernel sees."""
        return width

    def add_recurrent_kernel(self, columns: int) -> None:
        """Makes the weight U of the product with h."""
        self.recurrent_kernel = self.add_weight(
            shape=(self.output_size, columns),
            name="recurrent_kernel",
            initializer=self._initial_recurrent_kernel,
            regularizer=self.recurrent_regularizer,
            constraint=self.recurrent_constraint,
        )

    def bias_shape(self) -> Shape:
        """Shape of the bias weight."""
        return (self.num_gates * self.units,)

    def initial_bias(self, shape: Shape, dtype: Any = None) -> Tensor:
        """First value of the bias weight."""
        return self.bias_initializer(shape, dtype=dtype)

    def _initial_recurrent_kernel(self, shape: Shape, dtype: Any = None) -> Tensor:
        # no backend makes an orthogonal matrix in half precision
        compute = keras.backend.result_type(dtype, "float32")
        return ops.cast(self.recurrent_initializer(shape, dtype=compute), dtype)

    def input_bias(self) -> Tensor | None:
        """The part of the bias that joins `x W`, or None."""
        return self.bias

    @property
    def step_variables(self) -> list[keras.Variable]:
        """The weights that `step` reads."""
        return [self.recurrent_kernel]

    def in_step(self, weight: keras.Variable) -> Tensor:
        """The value of `weight` in the dtype of the computation.

        TensorFlow traces `step` once more for the gradient, when the scope in which
        Keras casts weights by itself is closed.
        """
        return ops.cast(weight.value, self.compute_dtype)

    def drop_inputs(self, inputs: Tensor, training: bool) -> Tensor:
        """Inputs `(B, D)` or `(B, T, D)` after dropout, one mask for all steps."""
        if not (training and self.dropout):
            return inputs
        steps = (1,) * (len(inputs.shape) - 2)
        mask_shape = (ops.shape(inputs)[0], *steps, inputs.shape[-1])
        return dropout(inputs, self.dropout, self.seed_generator, mask_shape)

    def project(self, inputs: Tensor, training: bool = False) -> Tensor:
        """`x W + b` for one step `(B, D)` or a sequence `(B, T, D)`."""
        projected = ops.matmul(self.drop_inputs(inputs, training), self.kernel)
        bias = self.input_bias()
        return projected if bias is None else projected + bias

    def recurrent_mask(self, batch_size: Any, training: bool = False) -> Tensor | None:
        """Dropout mask of the previous output, `(B, U)`, or None without one."""
        if not (training and self.recurrent_dropout):
            return None
        ones = ops.ones((batch_size, self.output_size), dtype=self.compute_dtype)
        return dropout(ones, self.recurrent_dropout, self.seed_generator)

    def step(
        self, projected: Tensor, states: list[Tensor], recurrent_mask: Tensor | None
    ) -> list[Tensor]:
        """The states after one step; the first of them is the output."""
        raise NotImplementedError(f"{type(self).__name__} must implement `step`.")

    @property
    def gates(self) -> Gates | None:
        """The elementwise part of a step, if its gradient is written by hand."""
        return None

    def gate_inputs(self, inputs: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """What `gates` takes from all inputs, and the bias that joins `h U`."""
        bias = None if self.bias is None else self.in_step(self.bias)
        return [affine(inputs, self.in_step(self.kernel), None)], bias

    def run(
        self,
        inputs: Tensor,
        states: list[Tensor],
        *,
        mask: Tensor | None = None,
        reset_mask: Tensor | None = None,
        reverse: bool = False,
        training: bool = False,
    ) -> tuple[Tensor, list[Tensor]] | None:
        """All steps at once, or None if the cell has to go a step at a time.

        Args:
            inputs: float `(B, T, D)`, zeros at masked steps.
            states: the first states.
            mask: bool `(B, T)`. At a False step the states are copied.
            reset_mask: bool `(B, T)`. True zeros the states before the step.
            reverse: bool. True runs from the last step to the first.
            training: bool. True applies dropout.

        Returns:
            The first state after each step, `(B, T, U)`, and the last states.
        """
        gates = self.gates
        if gates is None or not self._says_the_same("gates"):
            return None
        inputs = self.drop_inputs(inputs, training)
        recurrent_mask = self.recurrent_mask(ops.shape(inputs)[0], training)
        kernel = self.in_step(self.recurrent_kernel)

        def lane(rows: slice) -> Lane:
            def steps_first(x: Tensor | None) -> Tensor | None:
                return None if x is None else ops.swapaxes(x[rows], 0, 1)

            projected, bias = self.gate_inputs(steps_first(inputs))  # of (T, B, D)
            return Lane(
                projected,
                [state[rows] for state in states],
                kernel,
                bias,
                None if recurrent_mask is None else recurrent_mask[rows],
                steps_first(mask),
                steps_first(reset_mask),
            )

        lanes = [lane(rows) for rows in row_blocks(inputs)]
        runs = recurrence(gates, lanes, reverse=reverse)
        outputs = [ops.swapaxes(outputs, 0, 1) for outputs, _ in runs]
        last_states = [last for _, last in runs]
        return joined(outputs), [
            joined(list(blocks)) for blocks in zip(*last_states, strict=True)
        ]

    def _says_the_same(self, fast: str) -> bool:
        """Whether the method `fast` is as old as what it stands for.

        A subclass that changes `step` alone has to go a step at a time.
        """
        newest = _owner(self, fast)
        return all(issubclass(newest, _owner(self, n)) for n in ("step", "project"))

    @property
    def has_own_call(self) -> bool:
        """Whether a subclass has its own `call`, which is then the step."""
        return _owner(self, "call") is not RecurrentCell

    def call(
        self, inputs: Tensor, states: Any, training: bool = False
    ) -> tuple[Tensor, Any]:
        previous = list(states) if isinstance(states, list | tuple) else [states]
        mask = self.recurrent_mask(ops.shape(inputs)[0], training)
        new = self.step(self.project(inputs, training), previous, mask)
        return new[0], new if isinstance(states, list | tuple) else new[0]

    def get_initial_state(self, batch_size: Any = None) -> list[Tensor]:
        """Zeros, one tensor `(B, U)` a state."""
        sizes = (
            [self.state_size] if isinstance(self.state_size, int) else self.state_size
        )
        return [ops.zeros((batch_size, n), dtype=self.compute_dtype) for n in sizes]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": keras.initializers.serialize(
                self.recurrent_initializer
            ),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "recurrent_regularizer": keras.regularizers.serialize(
                self.recurrent_regularizer
            ),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "recurrent_constraint": keras.constraints.serialize(
                self.recurrent_constraint
            ),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
            "seed": self.seed,
        }


def _owner(cell: RecurrentCell, name: str) -> type:
    """The class of `cell` that defines `name`."""
    return next(kind for kind in type(cell).__mro__ if name in vars(kind))
