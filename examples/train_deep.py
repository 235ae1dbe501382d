"""Shows what the place and the kind of the norms do to deep Transformers.

Models of the next character of a text: 100 blocks with Pre-LN, by LayerNorm or by
RMSNorm, and with DeepNorm; and 24 blocks of Post-LN. Table, plot and JSON show the norm
of each block's gradient before the first step, and the loss over the steps. A loss that
stays at 3.3 nats has learned how frequent each character is and nothing more.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import NamedTuple

import keras

import kseq


class Kind(NamedTuple):
    """A stack, and how it is trained; the learning rate is the highest."""

    placement: str
    norm: str
    blocks: int
    rate: float = 1e-3
    warms_up: bool = False
    stddev: float | None = None  # of the first kernels; None is Glorot's


MODELS = {
    "pre-layer": Kind("pre", "layer", 100),
    "pre-rms": Kind("pre", "rms", 100),
    "deepnorm": Kind("deepnorm", "layer", 100),
    "post-glorot": Kind("post", "layer", 24, warms_up=True),
    "post": Kind("post", "layer", 24, rate=4e-3, stddev=0.02),
    "post-warmup": Kind("post", "layer", 24, rate=4e-3, stddev=0.02, warms_up=True),
}
WIDTH, HEADS, CONTEXT, BATCH = 64, 4, 32, 8
STEPS, SHOWN = 400, 20  # a loss is the mean over so many steps
QUICK_BLOCKS, QUICK_STEPS = 4, 60
WARMUP = 200  # steps up to the highest learning rate
SEED = 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--text", metavar="FILE", help="a text in UTF-8 (needed)")
    add("--models", nargs="+", choices=MODELS, default=list(MODELS),
        metavar="NAME", help=f"some of {', '.join(MODELS)} (default: all)")  # fmt: skip
    add("--steps", type=int, help=f"of training, for each model (default: {STEPS})")
    add("--logdir", default="logs/deep", help="for plot and JSON (logs/deep)")
    add("--quick", action="store_true", help="seconds a model: 4 blocks, few steps")
    arguments = parser.parse_args()
    if not arguments.text or not Path(arguments.text).is_file():
        parser.error(
            "--text FILE must name a text file. Tiny Shakespeare is "
            "data/tinyshakespeare/input.txt of https://github.com/karpathy/char-rnn"
        )
    arguments.steps = arguments.steps or (QUICK_STEPS if arguments.quick else STEPS)
    return arguments


def compile_model(model, optimizer, **options):
    model.compile(optimizer, loss=kseq.training.MaskedCrossentropy(), **options)


def block_gradient_norms(model, batch):
    """The norm of the gradient of each block's weights, which stay as they are."""
    before = model.get_weights()
    # a step of plain gradient descent at rate 1 moves each weight by its gradient
    compile_model(model, keras.optimizers.SGD(1.0), run_eagerly=True)
    model.train_on_batch(*batch)
    moves = [a - b for a, b in zip(before, model.get_weights())]
    gradients = {v.path: move for v, move in zip(model.weights, moves)}
    model.set_weights(before)
    norms = []
    for block in model.blocks:
        weights = block.trainable_variables
        parts = [gradients[weight.path] for weight in weights]
        norms.append(float(kseq.diagnostics.gradient_norms(parts, weights, [])[0]))
    return norms


def train(arguments, ids, vocabulary_size, name):
    """Gradient norms by block, then losses by step."""
    kind = MODELS[name]
    keras.utils.set_random_seed(SEED)
    initializer = "glorot_uniform"
    if kind.stddev is not None:
        initializer = keras.initializers.RandomNormal(stddev=kind.stddev)
    model = kseq.models.TransformerLM(
        vocabulary_size,
        QUICK_BLOCKS if arguments.quick else kind.blocks,
        WIDTH,
        HEADS,
        placement=kind.placement,
        norm=kind.norm,
        kernel_initializer=initializer,
    )
    windows = kseq.data.TextWindows(ids, batch_size=BATCH, length=CONTEXT, steps=SHOWN)
    norms = block_gradient_norms(model, windows[0])
    rate = kind.rate
    if kind.warms_up:
        # so that `rate` is the highest
        scale = rate * (WIDTH * WARMUP) ** 0.5
        rate = kseq.training.InverseSqrt(WIDTH, WARMUP, scale=scale)
    # XLA would take longer to compile 100 blocks than they are trained here
    compile_model(model, keras.optimizers.Adam(rate))
    epochs = max(1, arguments.steps // SHOWN)
    # Post-LN at a constant rate: `fit` warns of what will be seen
    losses = model.fit(windows, epochs=epochs, verbose=2).history["loss"]
    return {"gradient_norms": norms, "losses": losses}


def show(name, run):
    norms, losses = run["gradient_norms"], run["losses"]
    picked = [
        values[i] for values in (norms, losses) for i in (0, len(values) // 2, -1)
    ]
    numbers = "".join(f"{number:9.3g}" for number in picked)
    finite = "finite" if all(map(math.isfinite, norms + losses)) else "not finite"
    print(f"{name:16}{len(norms):6}{numbers}   {finite}")


def plot(runs, path):
    from matplotlib.figure import Figure

    figure = Figure((10, 4), layout="constrained")
    by_block, by_step = figure.subplots(1, 2)
    for name, run in runs.items():
        norms, losses = run["gradient_norms"], run["losses"]
        by_block.semilogy(
            [i / len(norms) for i in range(len(norms))], norms, label=name
        )
        by_step.plot([SHOWN * (i + 1) for i in range(len(losses))], losses, label=name)
    by_block.set(
        xlabel="depth of the block, from 0 to 1", ylabel="gradient norm at step 0"
    )
    by_step.set(xlabel="step", ylabel="loss, nats a character")
    by_step.legend()
    figure.savefig(path)


def main():
    arguments = parse_arguments()
    logdir = Path(arguments.logdir)
    logdir.mkdir(parents=True, exist_ok=True)
    text, _ = kseq.data.load_text(arguments.text)
    vocabulary = kseq.data.Vocabulary(sorted(set(text)))
    ids, runs = vocabulary.encode(text), {}
    for name in arguments.models:
        start = time.perf_counter()
        runs[name] = train(arguments, ids, len(vocabulary), name)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)

    print(f"\n{'':22}{'gradient norm of block':^27}{'loss':^27}")
    columns = "".join(f"{c:>9}" for c in "first middle last start middle end".split())
    print(f"{'model':16}{'blocks':>6}{columns}")
    for name, run in runs.items():
        show(name, run)
    finite = {
        name: {k: [v if math.isfinite(v) else None for v in run[k]] for k in run}
        for name, run in runs.items()
    }  # JSON has no NaN
    (logdir / "deep.json").write_text(json.dumps(finite))
    plot(runs, logdir / "deep.png")
    print(f"\nPlot: {logdir / 'deep.png'}")


if __name__ == "__main__":
    main()
