"""Dropout under XLA: keras.layers.Dropout against kseq.layers.Dropout.

Both drop the same share (checked first), in one run, alternating; medians of 7.
Run it on a quiet machine: `make bench`.
"""

import statistics
import time

import keras
import numpy as np
from keras import ops

import kseq
from kseq.backend import compiled

SHAPE, RATE, ROUNDS = (1024, 4096), 0.2, 7
KINDS = {"keras": keras.layers.Dropout, "kseq": kseq.layers.Dropout}


def function(kind):
    layer = kind(RATE, seed=0)
    state = layer.seed_generator.state

    def apply(x):
        with keras.StatelessScope([(state, state.value)]):
            return layer(x, training=True)

    return compiled(apply, [state])


def main():
    x = ops.ones(SHAPE)
    functions = {name: function(kind) for name, kind in KINDS.items()}
    for name, run in functions.items():
        share = np.mean(ops.convert_to_numpy(run(x)) == 0)
        if abs(share - RATE) > 0.01:
            raise SystemExit(f"{name} drops {share:.3f}, not {RATE}: not timed")
    times = {name: [] for name in KINDS}
    for _ in range(ROUNDS):
        for name, run in functions.items():
            start = time.perf_counter()
            ops.convert_to_numpy(run(x))
            times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{keras.backend.backend()}, {SHAPE} float32, rate {RATE}")
    for name, seconds in medians.items():
        ratio = medians["keras"] / seconds
        nanoseconds = 1e9 * seconds / np.prod(SHAPE)
        print(f"{name:6} {1e3 * seconds:8.2f} ms {nanoseconds:7.1f} ns an element "
              f"{ratio:6.1f} times as fast as keras")  # fmt: skip


if __name__ == "__main__":
    main()
