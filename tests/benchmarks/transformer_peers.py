"""One decoder-only Transformer as kseq, keras-hub and torch train it, same weights.

Each peer is what its users write: embedding, Pre-LN blocks with ReLU, no positions, a
last norm, logits; crossentropy and Adam. Keras trains by `train_on_batch`.
"""

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from measuring import check_equal

import kseq

# of Adam; torch adds its epsilon elsewhere, so it is too small to tell
RATE, EPSILON = 1e-4, 1e-10
NORM_EPSILON = 1e-5
CHECKED_STEPS = 3


class Case(NamedTuple):
    """Sizes of the model and of a batch."""

    layers: int
    width: int
    heads: int
    intermediate: int
    vocabulary: int
    batch: int
    time: int

    def __str__(self):
        return (
            f"{self.layers} x {self.width}, {self.heads} heads, {self.intermediate}, "
            f"{self.batch} x {self.time}, {self.vocabulary}"
        )

    def arrays(self):
        """Token ids and labels, none of them padding."""
        shape = (2, self.batch, self.time)
        return np.random.default_rng(0).integers(1, self.vocabulary, shape)

    def gflop(self):
        """Of the products of a step, half of the attention's square hidden."""
        block = 4 * self.width**2 + 2 * self.width * self.intermediate
        weights = self.layers * block + self.width * self.vocabulary
        attention = self.layers * 2 * (self.time / 2) * self.width
        return 6e-9 * self.batch * self.time * (weights + attention)


class Peer(NamedTuple):
    """`step()` trains and returns the loss; `parameters` is the number of weights."""

    step: Callable[[], Any]
    parameters: int


def peer_names():
    """The peers that this machine and this backend have, kseq first."""
    found = ["kseq"]
    if importlib.util.find_spec("keras_hub"):
        # JAX compiles always
        found += ["hub", "hub jit"][: 1 + (keras.backend.backend() != "jax")]
    if importlib.util.find_spec("torch"):
        found.append("torch")
    return found


def make_peer(name, case):
    """The peer of that name."""
    reference = _kseq_model(case)
    if name == "torch":
        return _torch_peer(case, reference)
    model = reference if name == "kseq" else _hub_model(case)
    # both have the weights of a block in the same order: attention, norms, dense
    if name != "kseq":
        _move_weights(reference, model)
    model.compile(
        keras.optimizers.Adam(RATE, epsilon=EPSILON),
        loss=kseq.training.MaskedCrossentropy()
        if name == "kseq"
        else keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=name != "hub" or keras.backend.backend() == "jax",
    )
    ids, labels = case.arrays()
    return Peer(lambda: float(model.train_on_batch(ids, labels)), model.count_params())


def check_peers(peers):
    """The worst difference of the losses of the first steps from those of kseq."""
    losses = {n: [p.step() for _ in range(CHECKED_STEPS)] for n, p in peers.items()}
    if not losses["kseq"][-1] < losses["kseq"][0]:
        raise SystemExit(f"the loss does not fall: {losses['kseq']}")
    return max(check_equal(name, losses[name], losses["kseq"]) for name in peers)


def _kseq_model(case):
    keras.utils.set_random_seed(0)
    return kseq.models.TransformerLM(
        case.vocabulary,
        case.layers,
        case.width,
        case.heads,
        intermediate_dim=case.intermediate,
        positions="none",
        activation="relu",
        tie_embeddings=False,
    )


def _hub_model(case):
    import keras_hub

    ids = keras.Input((None,), dtype="int32")
    # with that of Keras, on TensorFlow, Adam moves a repeated token too far
    x = kseq.layers.Embedding(case.vocabulary, case.width)(ids)
    for i in range(case.layers):
        x = keras_hub.layers.TransformerDecoder(
            case.intermediate,
            case.heads,
            activation="relu",
            layer_norm_epsilon=NORM_EPSILON,
            normalize_first=True,
            name=f"block_{i}",
        )(x)
    x = keras.layers.LayerNormalization(epsilon=NORM_EPSILON)(x)
    logits = keras.layers.Dense(case.vocabulary, use_bias=False)(x)
    return keras.Model(ids, logits)


def _move_weights(source, target):
    """By what they are: blocks are told apart by name, parts by their shapes' order."""
    for layer in target.layers:
        if layer.name.startswith("block_"):
            theirs = {_key(w): w for w in layer.weights}
            block = source.get_layer(layer.name)
            for key, value in block_weights(block).items():
                theirs[key].assign(np.reshape(value, theirs[key].shape))
    embedding, head = target.layers[1], target.layers[-1]
    embedding.set_weights(source.token_embedding.get_weights())
    head.set_weights(source.head.get_weights())


def _key(weight):
    """Of a keras-hub weight, such as `self_attention/query/kernel`: its last parts."""
    return "/".join(weight.path.split("/")[-2:])


def block_weights(block):
    mixer, feed_forward = block.mixer, block.feed_forward
    parts = {
        "query": mixer.query_dense,
        "key": mixer.key_dense,
        "value": mixer.value_dense,
        "attention_output": mixer.output_dense,
        "feedforward_intermediate_dense": feed_forward.input_dense,
        "feedforward_output_dense": feed_forward.output_dense,
    }
    return {
        f"{name}/{kind}": np.asarray(getattr(dense, kind))
        for name, dense in parts.items()
        for kind in ("kernel", "bias")
    }


def _torch_peer(case, source):
    import torch

    torch.set_num_threads(2)
    block = torch.nn.TransformerEncoderLayer(
        case.width,
        case.heads,
        case.intermediate,
        dropout=0.0,
        batch_first=True,
        norm_first=True,
        layer_norm_eps=NORM_EPSILON,
    )
    norm = torch.nn.LayerNorm(case.width, eps=NORM_EPSILON)
    stack = torch.nn.TransformerEncoder(
        block, case.layers, norm, enable_nested_tensor=False
    )
    embedding = torch.nn.Embedding(case.vocabulary, case.width)
    head = torch.nn.Linear(case.width, case.vocabulary, bias=False)
    with torch.no_grad():
        embedding.weight.copy_(_tensor(source.token_embedding.embeddings))
        head.weight.copy_(_tensor(source.head.kernel).T)
        for theirs, ours in zip(stack.layers, source.blocks):
            for name, value in _torch_weights(ours, case.width).items():
                theirs.get_parameter(name).copy_(torch.from_numpy(value))
    modules = torch.nn.ModuleList([embedding, stack, head])
    adam = torch.optim.Adam(modules.parameters(), RATE, eps=EPSILON)
    ids, labels = (torch.from_numpy(a) for a in case.arrays())
    mask = torch.nn.Transformer.generate_square_subsequent_mask(case.time)

    def step():
        adam.zero_grad()
        logits = head(stack(embedding(ids), mask=mask, is_causal=True))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        adam.step()
        return loss.item()

    return Peer(step, sum(p.numel() for p in modules.parameters()))


def _torch_weights(block, width):
    """Kernels are transposed, and queries, keys and values stand in one matrix."""
    ours = block_weights(block)
    names = "query", "key", "value"
    kernels = [ours[f"{name}/kernel"].reshape(width, width).T for name in names]
    biases = [ours[f"{name}/bias"].reshape(-1) for name in names]
    weights = {
        "self_attn.in_proj_weight": np.concatenate(kernels),
        "self_attn.in_proj_bias": np.concatenate(biases),
        "self_attn.out_proj.weight": ours["attention_output/kernel"]
        .reshape(width, width)
        .T,
        "self_attn.out_proj.bias": ours["attention_output/bias"],
    }
    for theirs, name in (("linear1", "intermediate"), ("linear2", "output")):
        weights[f"{theirs}.weight"] = ours[f"feedforward_{name}_dense/kernel"].T
        weights[f"{theirs}.bias"] = ours[f"feedforward_{name}_dense/bias"]
    return {name: np.ascontiguousarray(value) for name, value in weights.items()}


def _tensor(variable):
    import torch

    return torch.from_numpy(np.array(variable))
