"""Shows how far back the gradient of four kinds of layers reaches.

The task needs a long memory: to say, at the end of a row of tokens, which one it began
with. Table and plot show the norm of the loss's gradient with respect to the state of
each step, before the first step of training: what a layer could learn about that step.
For attention, it is that of the vector that stands at each place. In a simple RNN every
step back is one more product with the same weights, which no state outlives; a GRU and
an LSTM also have a sum on the way; with attention every place is one step away.
"""

import argparse
from pathlib import Path

import keras
import numpy as np

import kseq

TOKENS, UNITS, BATCH = 10, 32, 64
LENGTH, QUICK_LENGTH = 60, 12
# of the recurrent weights of the simple RNN, all singular values, which set its bound
GAIN = 0.9
SEED = 0
COLORS = {
    "SimpleRNN": "#c44e52", "GRU": "#55a868", "LSTM": "#4c72b0", "attention": "#8172b3"
}  # fmt: skip


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--logdir",
        type=Path,
        default=Path("logs/flow"),
        help="for the plot (logs/flow)",
    )
    parser.add_argument("--quick", action="store_true", help="a short sequence")
    return parser.parse_args()


def make_model(kind, length):
    ids = keras.Input((length,), dtype="int32")
    initializer = keras.initializers.RandomNormal(stddev=1.0)
    x = keras.layers.Embedding(TOKENS, UNITS, embeddings_initializer=initializer)(ids)
    if kind == "attention":
        x = kseq.layers.PositionEmbedding(length, name="state")(x)
        x = kseq.layers.MultiHeadAttention(1, UNITS)(x, x, use_causal_mask=True)[:, -1]
    elif kind == "SimpleRNN":
        weights = keras.initializers.Orthogonal(GAIN)
        x = kseq.layers.SimpleRNN(UNITS, recurrent_initializer=weights, name="state")(x)
    else:
        x = getattr(kseq.layers, kind)(UNITS, name="state")(x)
    model = keras.Model(ids, keras.layers.Dense(TOKENS)(x))
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def gradient_norms(model, kind, ids):
    """The norm at each step, and what no norm of a simple RNN can exceed."""
    if kind == "attention":
        layers = [model.get_layer("state")]
        flow = kseq.diagnostics.gradient_by_depth(model, ids, ids[:, 0], layers=layers)
        return flow["state"], None
    return kseq.diagnostics.gradient_through_time(model, ids, ids[:, 0])["state"]


def plot(curves, path):
    # matplotlib is no dependency of kseq
    from matplotlib.figure import Figure

    figure = Figure((8, 4.2), layout="constrained")
    axes = figure.subplots()
    for kind, (norms, bound) in curves.items():
        back = np.arange(len(norms))[::-1]
        axes.semilogy(back, norms, color=COLORS[kind], linewidth=2, label=kind)
        if bound is not None:
            label = f"its bound, {GAIN} a step"
            axes.semilogy(back, bound, "--", color=COLORS[kind], label=label)
    axes.invert_xaxis()
    axes.set_xlabel("steps back from the loss")
    axes.set_ylabel("norm of the gradient of the state")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=120)


def main():
    arguments = parse_arguments()
    length = QUICK_LENGTH if arguments.quick else LENGTH
    ids = np.random.default_rng(SEED).integers(0, TOKENS, (BATCH, length))
    places = [0, length // 2, length - 2, length - 1]
    print("steps back".ljust(12), *(f"{length - 1 - t:9}" for t in places))
    curves = {}
    for kind in COLORS:
        keras.utils.set_random_seed(SEED)
        curves[kind] = norms, _ = gradient_norms(make_model(kind, length), kind, ids)
        print(kind.ljust(12), *(f"{norms[t]:9.1e}" for t in places))
    arguments.logdir.mkdir(parents=True, exist_ok=True)
    plot(curves, arguments.logdir / "gradient_flow.png")
    print(f"Plot: {arguments.logdir / 'gradient_flow.png'}")


if __name__ == "__main__":
    main()
