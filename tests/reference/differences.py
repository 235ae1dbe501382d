"""Gradients by central differences, in float64."""

import numpy as np


def numeric_gradients(function, arrays, step=1e-5):
    """Gradients of the scalar `function(*arrays)` with respect to each array."""
    arrays = [np.array(a, "float64") for a in arrays]
    found = []
    for array in arrays:
        gradient = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            kept = array[index]
            array[index] = kept + step
            above = function(*arrays)
            array[index] = kept - step
            below = function(*arrays)
            array[index] = kept
            gradient[index] = (above - below) / (2 * step)
        found.append(gradient)
    return found
