"""Scaled dot-product attention as kseq, Keras and torch run it, on the same arrays."""

import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from measuring import check_equal

import kseq


class Case(NamedTuple):
    """Causal self-attention of `time` tokens; `groups` are the heads of the keys."""

    batch: int
    time: int
    heads: int = 8
    groups: int = 8
    window: int | None = None
    width: int = 64

    def __str__(self):
        heads = f"{self.heads}" + f"/{self.groups}" * (self.groups != self.heads)
        window = f", window {self.window}" if self.window else ""
        return f"{self.batch}x{self.time}x{heads}x{self.width}{window}"

    def arrays(self):
        """Query, key, value and the gradient of the output.

        Those of a shorter case are the first tokens of these.
        """
        heads = self.heads, self.groups, self.groups, self.heads
        shapes = [(self.time, self.batch, n, self.width) for n in heads]
        drawn = (np.random.default_rng(i).normal(size=s) for i, s in enumerate(shapes))
        return [np.swapaxes(x, 0, 1).astype("float32") for x in drawn]


class Peer(NamedTuple):
    """`step()` runs forward and backward; `arrays` makes NumPy of what it returns.

    That is the output and the gradients of query, key and value, `(B, T, H, K)`.
    """

    step: Callable[[], Any]
    arrays: Callable[[Any], list[Any]]


def peer_names(case):
    """The peers that there are, and that there is room for, kseq first."""
    # weights, their gradients and two products of both
    needed = 4 * 4 * case.batch * case.heads * case.time**2
    keras_names = ["keras"] if needed < _free_bytes() else []
    torch_names = ["torch"] if importlib.util.find_spec("torch") else []
    return ["kseq", *keras_names, *torch_names]


def make_peer(name, case):
    """The peer `name`; `plain` is kseq's attention that holds the weights."""
    if name == "torch":
        return _torch_peer(case)
    function = {"kseq": _blockwise, "plain": _plain, "keras": _keras}[name](case)
    if keras.backend.backend() == "jax":
        return _jax_peer(function, case.arrays())
    return _tensorflow_peer(function, case.arrays())


def check_peers(case, peers):
    """Compares what all peers return with the first; returns the worst error."""
    first, *others = peers
    want = peers[first].arrays(peers[first].step())
    names = "output", "gradient of query", "gradient of key", "gradient of value"
    errors = [
        check_equal(f"{case}, {first} and {other}, {name}", *pair)
        for other in others
        for name, *pair in zip(names, peers[other].arrays(peers[other].step()), want)
    ]
    if not errors:
        raise SystemExit(f"{case}: no peer to compare with: not timed")
    return max(errors)


def check_prefix(case, peer, length):
    """The same for a case too long for any peer but kseq: `length` tokens are compared.

    They are compared with Keras, and then the output of all tokens with theirs: a
    causal output does not depend on what comes later.
    """
    short = case._replace(time=length)
    peers = {name: make_peer(name, short) for name in ("kseq", "keras")}
    error = check_peers(short, peers)
    want, got = (p.arrays(p.step())[0] for p in (peers["kseq"], peer))
    return max(error, check_equal(f"{case}, output", got[:, :length], want))


def _free_bytes():
    lines = Path("/proc/meminfo").read_text()
    return 1024 * int(re.search(r"MemAvailable:\s+(\d+) kB", lines)[1])


def _blockwise(case):
    return lambda query, key, value: kseq.ops.blockwise_attention(
        query, key, value, use_causal_mask=True, window=case.window
    )


def _plain(case):
    return lambda query, key, value: kseq.ops.dot_product_attention(
        query, key, value, use_causal_mask=True, window=case.window
    )[0]


def _keras(case):
    """What the layer does between its projections."""
    layer = keras.layers.MultiHeadAttention(
        case.heads, case.width, sliding_window=case.window
    )
    inputs = case.batch, case.time, case.heads * case.width
    layer.build(inputs, inputs)
    for name in ("query", "key", "value", "output"):
        setattr(layer, f"_{name}_dense", lambda x: x)
    repeats = case.heads // case.groups

    def attend(query, key, value):
        if repeats > 1:  # as keras.layers.GroupQueryAttention does
            key, value = (ops.repeat(x, repeats, axis=2) for x in (key, value))
        return layer.call(query, value, key, use_causal_mask=True)

    return attend


def _tensorflow_peer(function, arrays):
    import tensorflow as tf

    @tf.function(jit_compile=True, autograph=False)
    def step(*inputs, d_output):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        return output, *tape.gradient(output, inputs, d_output)

    *inputs, d_output = map(tf.constant, arrays)
    return Peer(
        lambda: step(*inputs, d_output=d_output),
        lambda found: [x.numpy() for x in found],
    )


def _jax_peer(function, arrays):
    import jax

    @jax.jit
    def step(*inputs, d_output):
        output, gradient = jax.vjp(function, *inputs)
        return output, *gradient(d_output)

    *inputs, d_output = map(jax.numpy.asarray, arrays)
    return Peer(
        lambda: jax.block_until_ready(step(*inputs, d_output=d_output)),
        lambda found: [np.asarray(x) for x in found],
    )


def _torch_peer(case):
    import torch

    torch.set_num_threads(os.cpu_count())
    # torch has the heads before the time, and gets them there at no cost
    tensors = [torch.from_numpy(x).transpose(1, 2).contiguous() for x in case.arrays()]
    *inputs, d_output = tensors
    for x in inputs:
        x.requires_grad_()

    def step():
        output = torch.nn.functional.scaled_dot_product_attention(
            *inputs, is_causal=True, enable_gqa=case.groups < case.heads
        )
        return output.detach(), *torch.autograd.grad(output, inputs, d_output)

    return Peer(step, lambda found: [x.transpose(1, 2).numpy() for x in found])
