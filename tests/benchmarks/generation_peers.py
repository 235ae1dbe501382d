"""One GPT-2 as kseq, keras-hub and transformers generate with it, same weights."""

import importlib.util
from typing import NamedTuple

import keras
import numpy as np
from transformer_peers import block_weights

import kseq


class Case(NamedTuple):
    """Sizes of the model, and how many tokens follow a prompt of how many."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    prompt: int
    new: int

    @property
    def length(self):
        """Tokens of a whole row."""
        return self.prompt + self.new

    def prompts(self, batch):
        """Token ids, none of them padding."""
        shape = (batch, self.prompt)
        return np.random.default_rng(0).integers(1, self.vocabulary, shape)


def peer_names():
    """The peers that this machine has, kseq first."""
    found = ["kseq"]
    if importlib.util.find_spec("keras_hub"):
        found.append("hub")
    if importlib.util.find_spec("transformers"):
        found.append("transformers")
    return found


def kseq_model(case, window=None):
    """GPT-2 in kseq, with random weights."""
    keras.utils.set_random_seed(0)
    model = kseq.models.TransformerLM(
        case.vocabulary,
        case.layers,
        case.width,
        case.heads,
        positions=kseq.layers.PositionEmbedding(case.length),
        activation="gelu_tanh",
        window=window,
    )
    table = np.array(model.token_embedding.embeddings)
    table[0] = 0  # padding, which kseq never chooses: no peer does now
    model.token_embedding.embeddings.assign(table)
    return model


def generator(name, model, case, **options):
    """A function from prompts to the new ids, greedy; `options` are kseq's."""
    if name == "hub":
        return _hub(model, case)
    if name == "transformers":
        return _transformers(model, case)
    return lambda prompts: model.generate(prompts, case.new, **options).token_ids


def _parts(model):
    """What is no block: the two tables, and the last norm."""
    positions = next(
        layer
        for layer in model.layers
        if isinstance(layer, kseq.layers.PositionEmbedding)
    )
    return model.token_embedding, positions, model.final_norm


def _hub(model, case):
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(
        case.vocabulary,
        case.layers,
        case.heads,
        case.width,
        4 * case.width,
        dropout=0.0,
        max_sequence_length=case.length,
    )
    tables = (
        backbone.token_embedding,
        backbone.position_embedding,
        backbone.layer_norm,
    )
    for theirs, ours in zip(tables, _parts(model)):
        theirs.set_weights(ours.get_weights())
    for theirs, ours in zip(backbone.transformer_layers, model.blocks):
        weights = {"/".join(w.path.split("/")[-2:]): w for w in theirs.weights}
        for key, value in block_weights(ours).items():
            weights[key].assign(np.reshape(value, weights[key].shape))
    hub = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    hub.compile(sampler="greedy", jit_compile=True)

    def generate(prompts):
        ids = np.zeros((len(prompts), case.length), "int32")
        ids[:, : case.prompt] = prompts
        inputs = {"token_ids": ids, "padding_mask": ids != 0}
        made = hub.generate(inputs, stop_token_ids=None)["token_ids"]
        return np.asarray(made)[:, case.prompt :]

    return generate


def _transformers(model, case):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(2)
    config = GPT2Config(
        vocab_size=case.vocabulary,
        n_positions=case.length,
        n_embd=case.width,
        n_layer=case.layers,
        n_head=case.heads,
        bos_token_id=None,
        eos_token_id=None,
    )
    gpt2 = GPT2LMHeadModel(config).eval()
    tokens, positions, norm = (part.get_weights() for part in _parts(model))
    found = {"wte.weight": tokens[0], "wpe.weight": positions[0]}
    found |= dict(zip(("ln_f.weight", "ln_f.bias"), norm))
    for i, block in enumerate(model.blocks):
        for name, value in _conv1d_weights(block, case.width).items():
            found[f"h.{i}.{name}"] = value
    with torch.no_grad():
        for name, value in found.items():
            gpt2.transformer.get_parameter(name).copy_(torch.from_numpy(value))

    def generate(prompts):
        with torch.inference_mode():
            ids = torch.from_numpy(prompts)
            made = gpt2.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=case.new,
                do_sample=False,
                pad_token_id=0,
            )
        return made[:, case.prompt :].numpy()

    return generate


def _conv1d_weights(block, width):
    """Queries, keys and values stand in one matrix, `(in, out)` as in Keras."""
    ours = block_weights(block)
    names = "query", "key", "value"
    kernels = [ours[f"{name}/kernel"].reshape(width, width) for name in names]
    weights = {
        "attn.c_attn.weight": np.concatenate(kernels, axis=1),
        "attn.c_attn.bias": np.concatenate(
            [ours[f"{name}/bias"].reshape(-1) for name in names]
        ),
        "attn.c_proj.weight": ours["attention_output/kernel"].reshape(width, width),
        "attn.c_proj.bias": ours["attention_output/bias"],
    }
    for theirs, name in (("c_fc", "intermediate"), ("c_proj", "output")):
        for kind, part in (("weight", "kernel"), ("bias", "bias")):
            weights[f"mlp.{theirs}.{kind}"] = ours[f"feedforward_{name}_dense/{part}"]
    return weights
