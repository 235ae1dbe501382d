"""Learns to write like a text: a model of its next character, or byte pair.

A Transformer, or a recurrent network, is trained on nine tenths of a text and scored on
all of the last tenth. Defaults are nanoGPT's setting for a CPU, which ends at 1.88 nats
a character on Tiny Shakespeare. With --extrapolate, four Transformers with different
positions are trained and then read texts that are longer than those of their training.
"""

import argparse
import json
from pathlib import Path

import keras
import numpy as np

import kseq

DEFAULT = {"width": 128, "layers": 4, "context": 64, "batch": 12, "steps": 2000}
QUICK = {"width": 16, "layers": 1, "context": 16, "batch": 4, "steps": 20}
HEADS, EPOCHS = 4, 5  # the last tenth is read after each epoch
RATE, LAST_RATE, WARMUP = 1e-3, 1e-4, 100
ADAMW = {"weight_decay": 0.1, "beta_2": 0.99, "global_clipnorm": 1.0}
READ_TOKENS, QUICK_TOKENS = 4096, 1500  # of an evaluation's batch; of the last tenth
SAMPLE, TEMPERATURE = 200, 0.8
SCHEMES, STRETCH, LENGTHS = ("rotary", "alibi", "sinusoidal", "none"), 4, (1, 2, 4, 8)
SEED = 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--text", metavar="FILE", help="a text in UTF-8 (needed)")
    add("--byte-pairs", type=int, metavar="N", help="N byte pairs, not characters")
    add("--model", default="transformer", help="transformer (default), rnn, gru, lstm")
    add("--placement", default="pre", help="pre (default), post, sandwich or deepnorm")
    add("--norm", default="layer", help="layer (default) or rms")
    add("--positions", default="rotary", help="or alibi, t5, sinusoidal, none")
    add("--steps", type=int, help="of training (default: 2000)")
    add("--context", type=int, help="tokens that are read at once (default: 64)")
    add("--logdir", default="logs/language_model", help="for model, curves and plot")
    add("--quick", action="store_true", help="seconds: a tiny model, a few steps")
    add("--extrapolate", action="store_true", help="reads texts up to 8 times as long")
    arguments = parser.parse_args()
    if not arguments.text or not Path(arguments.text).is_file():
        parser.error(
            "--text FILE must name a text file. Tiny Shakespeare is "
            "data/tinyshakespeare/input.txt of https://github.com/karpathy/char-rnn"
        )
    if arguments.extrapolate and arguments.model != "transformer":
        parser.error("--extrapolate compares positions of a Transformer")
    for name, value in (QUICK if arguments.quick else DEFAULT).items():
        setattr(arguments, name, getattr(arguments, name, None) or value)
    return arguments


def read(arguments):
    """Ids of both parts of the text, and what made them."""
    train, dev = kseq.data.load_text(arguments.text)
    coder = kseq.data.Vocabulary(sorted({*train, *dev}))
    if arguments.byte_pairs:
        lines = train.splitlines(keepends=True)
        coder = kseq.data.BytePairTokenizer.train(lines, arguments.byte_pairs)
    dev = coder.encode(dev)[: QUICK_TOKENS if arguments.quick else None]
    return coder.encode(train), dev, coder


def make_model(arguments, size, positions):
    keras.utils.set_random_seed(SEED)
    width, layers, steps = arguments.width, arguments.layers, arguments.steps
    if arguments.model != "transformer":  # of about as many weights
        options = {"num_layers": (layers + 1) // 2, "cell": arguments.model}
        model = kseq.models.RecurrentLM(size, width, 2 * width, **options)
    else:
        options = {"norm": arguments.norm, "placement": arguments.placement}
        options["positions"] = positions
        model = kseq.models.TransformerLM(size, layers, width, HEADS, **options)
    warmup = min(WARMUP, steps // 4)
    rates = {"warmup_target": RATE, "warmup_steps": warmup, "alpha": LAST_RATE / RATE}
    schedule = keras.optimizers.schedules.CosineDecay(0.0, steps - warmup, **rates)
    model.compile(
        keras.optimizers.AdamW(schedule, **ADAMW),
        loss=kseq.training.MaskedCrossentropy(),
        metrics=[kseq.training.TokenCrossentropy(), kseq.training.Perplexity()],
        jit_compile=True,
    )
    return model


def rows(ids, length):
    """A data set of a text cut into rows, where each token but one is a target once."""
    packed = kseq.data.pack([ids], length)  # ids, targets, segments (0 for padding)
    ids, targets = ([x[s > 0] for x, s in zip(a, packed[2])] for a in packed[:2])
    options = {"batch_size": max(1, READ_TOKENS // length), "num_buckets": 1}
    return kseq.data.bucket_by_length(ids, targets, shuffle=False, **options)


def train(model, arguments, ids, dev, logdir):
    sizes = {"batch_size": arguments.batch, "length": arguments.context}
    steps, held_out = max(1, arguments.steps // EPOCHS), rows(dev, arguments.context)
    windows = kseq.data.TextWindows(ids, steps=steps, **sizes)
    board = [keras.callbacks.TensorBoard(logdir), kseq.callbacks.GradientNorms(logdir)]
    model.fit(windows, epochs=EPOCHS, validation_data=held_out, callbacks=board)


def score(model, dev, coder, length):
    """Nats a character and perplexity, over the whole last tenth of the text."""
    _, nats, perplexity = model.evaluate(rows(dev, length), verbose=0)
    return nats * (len(dev) - 1) / len("".join(coder.decode(dev[1:]))), perplexity


def sample(model, ids, length):
    """`ids` and what the model writes after them."""
    generator, ids = np.random.default_rng(SEED), list(ids)
    for _ in range(SAMPLE):
        logits = model.predict_on_batch(np.array([ids[-length:]]))[0, -1, 3:]
        # a draw from the softmax; ids 0, 1 and 2 are no text
        noise = generator.gumbel(size=len(logits))
        ids.append(3 + int(np.argmax(logits / TEMPERATURE + noise)))
    return ids


def extrapolate(arguments, ids, dev, coder, logdir):
    """Reads longer texts with each kind of positions: a table, a plot and JSON."""
    from matplotlib.figure import Figure

    context, models, table = arguments.context, {}, {}
    for scheme in SCHEMES:
        print(f"\nPositions: {scheme}")
        models[scheme] = make_model(arguments, len(coder), scheme)
        train(models[scheme], arguments, ids, dev, logdir / scheme)
    linear, ntk = kseq.ops.LinearScaling(STRETCH), kseq.ops.NTKScaling(STRETCH)
    yarn = kseq.ops.YaRNScaling(STRETCH, context)
    for name, scaling in {"linear": linear, "NTK": ntk, "YaRN": yarn}.items():
        positions = kseq.layers.RotaryEmbedding(scaling=scaling)
        model = models[f"rotary {name}"] = make_model(arguments, len(coder), positions)
        model.set_weights(models["rotary"].get_weights())
    lengths = [context * times for times in LENGTHS]
    axes = (figure := Figure(layout="constrained")).subplots()
    print(f"\n{'nats a character':16}" + "".join(f"{n:8}" for n in lengths))
    for name, model in models.items():
        nats = [score(model, dev, coder, n)[0] for n in lengths]
        table[name] = dict(zip(map(str, lengths), nats))
        print(f"{name:16}" + "".join(f"{value:8.3f}" for value in nats))
        axes.plot(table[name].keys(), nats, "o-", label=name)
    axes.set(xlabel="tokens read at once", ylabel="nats a character")
    axes.legend()
    figure.savefig(logdir / "extrapolation.png")
    (logdir / "extrapolation.json").write_text(json.dumps(table, indent=1))
    print(f"\nPlot: {logdir / 'extrapolation.png'}")


def main():
    arguments = parse_arguments()
    logdir = Path(arguments.logdir)
    ids, dev, coder = read(arguments)
    print(f"{len(ids):,} tokens to learn from, {len(dev):,} held out")
    if arguments.extrapolate:
        return extrapolate(arguments, ids, dev, coder, logdir)
    model = make_model(arguments, len(coder), arguments.positions)
    print(f"Model: {model.count_params():,} weights")
    train(model, arguments, ids, dev, logdir)
    model.save(logdir / "language_model.keras")
    context = arguments.context
    nats, perplexity = score(model, dev, coder, context)
    print(f"\nHeld out: {nats:.4f} nats a character, perplexity {perplexity:.3f}")
    written = sample(model, dev[:context], context)
    print("\nGiven: " + "".join(coder.decode(written[:context])))
    print("\nWritten: " + "".join(coder.decode(written[context:])))
    print(f"\nModel: {logdir / 'language_model.keras'}")
    print(f"Dashboard: make tensorboard LOGDIR={logdir}")


if __name__ == "__main__":
    main()
