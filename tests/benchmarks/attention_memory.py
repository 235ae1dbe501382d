"""Peak memory of forward and backward, in a process of its own.

    python attention_memory.py PEER TIME HEADS GROUPS

prints what `measuring.print_peak` says, for causal attention of width 64 on one
sequence: a peer of `attention_peers`, or `layer` for the training step of a
`kseq.layers.MultiHeadAttention` on inputs as wide as its heads together.
"""

import sys

from attention_peers import Case, make_peer
from layer_peer import layer_peer
from measuring import print_peak

import kseq


def layer_step(case):
    x, _, _, factors = (x.reshape(1, case.time, -1) for x in case.arrays())
    layer = kseq.layers.MultiHeadAttention(
        case.heads, case.width, num_key_value_heads=case.groups
    )
    layer.build(x.shape, x.shape)
    return layer_peer(layer, x, factors, {"value": x}, use_causal_mask=True).step


def main(name, length, heads, groups):
    def make_step(case):
        return layer_step(case) if name == "layer" else make_peer(name, case).step

    print_peak(make_step, *(Case(1, time, heads, groups) for time in (64, length)))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
