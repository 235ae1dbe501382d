"""The least that a cell needs."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kseq_tests")
class SumCell(keras.layers.Layer):
    """h' = h/2 + x w. It knows nothing of kseq: no first state, no `training`."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.state_size = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")

    def call(self, inputs, states):
        h = states[0] / 2 + ops.matmul(inputs, self.kernel)
        return h, [h]

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def sum_step(weights, x, states):
    """The same in float64, of one row."""
    h = states[0] / 2 + x @ weights[0]
    return h, [h]
