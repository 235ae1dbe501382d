"""Peak memory and time of a loss over a large vocabulary, in a process of its own.

    python vocabulary_memory.py KIND TOKENS VOCABULARY WIDTH

prints what `measuring.print_peak` says, for the loss and its gradients of the hidden
states and of the kernel: `plain` is `MaskedCrossentropy` of the logits of a `Dense`
kernel, `chunked` is `kseq.ops.summed_vocabulary_crossentropy`, `tied` the latter with
the table of an embedding, and `plain-tied` the former.
"""

import sys

import keras
import numpy as np
from keras import ops
from layer_peer import layer_peer
from measuring import print_peak

import kseq


class Loss(keras.layers.Layer):
    """Its weights are what is differentiated; its inputs the targets `(1, T)`."""

    def __init__(self, kind, tokens, vocabulary, width):
        super().__init__()
        self.chunked = not kind.startswith("plain")
        self.tied = kind.endswith("tied")
        normal = keras.initializers.RandomNormal
        self.hidden = self.add_weight((1, tokens, width), normal(1.0, seed=1))
        shape = (vocabulary, width) if self.tied else (width, vocabulary)
        self.kernel = self.add_weight(shape, normal(width**-0.5, seed=2))
        self.built = True

    def call(self, targets):
        weights = ops.cast(ops.not_equal(targets, 0), "float32")
        if self.chunked:
            found = kseq.ops.summed_vocabulary_crossentropy(
                self.hidden, self.kernel, targets, weights, transpose_kernel=self.tied
            )
            return found.total / ops.sum(weights)
        kernel = ops.transpose(self.kernel) if self.tied else self.kernel
        logits = ops.matmul(self.hidden, kernel)
        return kseq.training.MaskedCrossentropy()(targets, logits)


def make_peer(kind, tokens, vocabulary, width):
    """The `forward` and `step` of a kind of loss; the last two targets are padding."""
    layer = Loss(kind, tokens, vocabulary, width)
    targets = np.random.default_rng(0).integers(1, vocabulary, (1, tokens))
    targets[:, -2:] = 0
    return layer_peer(layer, targets.astype("int32"), np.float32(1))


def main(kind, tokens, vocabulary, width):
    def make_step(case):
        return make_peer(kind, *case).step

    print_peak(make_step, (512, 1000, width), (tokens, vocabulary, width))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
