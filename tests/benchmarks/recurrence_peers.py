"""One recurrent layer as kseq, Keras and torch run it, with the same weights.

Every peer takes the whole layer as users call it, on a batch-major `(B, T, D)`.
"""

import importlib.util
from typing import NamedTuple

import keras
import numpy as np
from layer_peer import Peer, layer_peer
from measuring import check_equal

import kseq

GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}


class Case(NamedTuple):
    """A layer `kind` of width `units` on inputs `(batch, time, width)`."""

    kind: str
    batch: int
    time: int
    width: int
    units: int

    def __str__(self):
        shape = f"{self.batch}x{self.time}x{self.width}->{self.units}"
        return f"{self.kind} {shape}"

    def gflop(self, training):
        """Of the products alone: x W and h U, then their gradients but that of x."""
        inputs, states = (2, 3) if training else (1, 1)
        products = inputs * self.width + states * self.units
        columns = GATES[self.kind] * self.units
        return 2e-9 * self.batch * self.time * columns * products

    def arrays(self):
        """Inputs, the factors of the outputs in the loss, and Keras's weights."""
        rng = np.random.default_rng(0)
        columns = GATES[self.kind] * self.units
        weights = [
            rng.normal(size=(self.width, columns)) / np.sqrt(self.width),
            rng.normal(size=(self.units, columns)) * 0.7 / np.sqrt(self.units),
            rng.normal(size=(2, columns) if self.kind == "GRU" else columns) * 0.3,
        ]
        x = rng.normal(size=(self.batch, self.time, self.width))
        factors = rng.normal(size=(self.batch, self.time, self.units))
        weights = [w.astype("float32") for w in weights]
        return x.astype("float32"), factors.astype("float32"), weights

    def mask(self):
        """Of rows with random lengths, padded on the right."""
        lengths = np.random.default_rng(1).integers(1, self.time + 1, self.batch)
        return np.arange(self.time) < lengths[:, None]


def peer_names():
    """The peers that this machine and this backend have, kseq first."""
    # JAX compiles always
    keras_names = ["keras", "keras jit"][: 1 + (keras.backend.backend() != "jax")]
    torch_names = ["torch"] if importlib.util.find_spec("torch") else []
    return ["kseq", *keras_names, *torch_names]


def make_peer(name, case, tensors=None, *, recurrent_dropout=0.0, **options):
    """The peer `name`; `tensors` and `options` are further arguments of the call."""
    x, factors, weights = case.arrays()
    if name == "torch":
        return _torch_peer(case, x, factors, weights)
    package = kseq if name == "kseq" else keras
    layer = getattr(package.layers, case.kind)(
        case.units, return_sequences=True, recurrent_dropout=recurrent_dropout
    )
    layer.build(x.shape)
    layer.set_weights(weights)
    return layer_peer(layer, x, factors, tensors, jit=name != "keras", **options)


def _torch_peer(case, x, factors, weights):
    import torch

    torch.set_num_threads(2)
    # torch has the gates r, z, n for Keras's z, r, n; LSTM's order is the same
    order = [1, 0, 2] if case.kind == "GRU" else range(GATES[case.kind])

    def reorder(array):  # its own inverse
        gates = np.split(array, GATES[case.kind], axis=-1)
        return np.concatenate([gates[gate] for gate in order], axis=-1)

    kernel, recurrent, bias = map(reorder, weights)
    biases = bias if case.kind == "GRU" else [bias, np.zeros_like(bias)]
    module = getattr(torch.nn, case.kind.replace("SimpleRNN", "RNN"))(
        case.width, case.units, batch_first=True
    )
    values = [kernel.T, recurrent.T, *biases]
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), values):
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))
    x, factors = torch.from_numpy(x), torch.from_numpy(factors)

    def forward():
        with torch.no_grad():
            return module(x)[0]

    def step():
        module.zero_grad()
        torch.sum(module(x)[0] * factors).backward()
        return [parameter.grad for parameter in module.parameters()]

    def gradients(found):
        kernel, recurrent, *biases = (g.numpy().T for g in found)
        bias = np.stack(biases) if case.kind == "GRU" else biases[0]
        return [reorder(g) for g in (kernel, recurrent, bias)]

    return Peer(forward, step, gradients)


def check_peers(case, peers, reference="keras"):
    """Compares outputs and weight gradients of all peers; returns the worst error."""
    outputs = peers[reference].forward()
    gradients = peers[reference].gradients(peers[reference].step())
    errors = []
    for name, peer in peers.items():
        if name == reference:
            continue
        errors.append(check_equal(f"{case}, {name}", peer.forward(), outputs))
        names = "kernel", "recurrent kernel", "bias"
        found = peer.gradients(peer.step())
        errors += [
            check_equal(f"{case}, {name}, gradient of the {weight}", got, want)
            for weight, got, want in zip(names, found, gradients, strict=True)
        ]
    return max(errors)
