"""Learns to translate English into German, from pairs of sentences.

An encoder-decoder, recurrent without attention (plain) or with it (bahdanau), or a
Transformer, is trained on sub-words and scored on sentences that it has not seen.
"""

import argparse
import time
from pathlib import Path

import keras
from score_translation import (
    add_shared_arguments,
    load_pairs,
    probe,
    report,
    save_results,
    spread,
)

import kseq

GRU = {"num_layers": 2, "embedding_dim": 96, "dropout": 0.2}
# epochs, batch, learning rate, class, arguments: about 3 million parameters and 100
# TFLOP each, with the 164,709 training pairs of deu-eng.zip (2018)
SETTINGS = {
    "plain": (3, 128, 2e-3, kseq.models.RecurrentSeq2Seq,
        {**GRU, "units": 256, "attention": None}),
    "bahdanau": (3, 128, 2e-3, kseq.models.RecurrentSeq2Seq,
        {**GRU, "units": 224, "attention": "bahdanau"}),
    "transformer": (3, 64, 1.5e-3, kseq.models.TransformerSeq2Seq,
        {"num_layers": 2, "hidden_dim": 192, "num_heads": 4, "dropout": 0.1,
         "share_embeddings": True}),
}  # fmt: skip
QUICK_SIZES = {"num_layers": 1, "embedding_dim": 16, "units": 16, "hidden_dim": 16}
VOCABULARY_SIZE = 4000  # of both languages together
BUCKETS, DEV_BUCKETS = 6, 2  # XLA makes a program of each
SMOOTHING = 0.1  # of the labels
WARMUP = 0.05  # share of the steps in which the learning rate rises
CLIP_NORM = 1.0
NUM_PROBES = 4
SEED = 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--model", default="bahdanau", choices=SETTINGS, help="(default: bahdanau)")
    add("--epochs", type=int, help="passes over the pairs (default: see SETTINGS)")
    add("--vocabulary", metavar="FILE", help="vocabulary.json of another run, for its "
        "sub-words (default: learned from the pairs)")  # fmt: skip
    add("--logdir", type=Path, help="for translation.keras, vocabulary.json, curves, "
        "results.json and alignment.png (default: logs/translation/MODEL)")  # fmt: skip
    add_shared_arguments(parser)
    arguments = parser.parse_args()
    arguments.logdir = arguments.logdir or Path("logs/translation", arguments.model)
    return arguments, load_pairs(parser, arguments)


def make_tokenizer(vocabulary, pairs):
    if vocabulary:
        return kseq.data.BytePairTokenizer.load(vocabulary)
    texts = (text for pair in pairs for text in pair)
    return kseq.data.BytePairTokenizer.train(texts, VOCABULARY_SIZE)


def make_model(name, vocabulary_size, quick):
    *_, kind, options = SETTINGS[name]
    if quick:
        options = {key: QUICK_SIZES.get(key, options[key]) for key in options}
    return kind(vocabulary_size, vocabulary_size, **options)


def main():
    arguments, data = parse_arguments()
    keras.utils.set_random_seed(SEED)
    epochs, batch, learning_rate, *_ = SETTINGS[arguments.model]
    epochs = arguments.epochs or (1 if arguments.quick else epochs)
    logdir = arguments.logdir
    logdir.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(arguments.vocabulary, data.train)
    tokenizer.save(logdir / "vocabulary.json")

    def batches(pairs, **options):
        sides = [[tokenizer.encode(text) for text in side] for side in zip(*pairs)]
        return kseq.data.BucketedPairs(*sides, batch_size=batch, **options)

    buckets, dev_buckets = (1, 1) if arguments.quick else (BUCKETS, DEV_BUCKETS)
    pairs = batches(data.train, num_buckets=buckets, seed=SEED)
    dev_pairs = batches(data.dev, num_buckets=dev_buckets, shuffle=False)
    model = make_model(arguments.model, len(tokenizer), arguments.quick)
    print(f"Training: {pairs}\nParameters: {model.count_params():,}")

    steps = epochs * len(pairs)
    warmup = int(WARMUP * steps)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - warmup, warmup_target=learning_rate, warmup_steps=warmup
    )
    model.compile(
        keras.optimizers.Adam(schedule, global_clipnorm=CLIP_NORM),
        loss=kseq.training.MaskedCrossentropy(label_smoothing=SMOOTHING),
        metrics=[kseq.training.TokenAccuracy()],
        jit_compile=True,
    )
    callbacks = [keras.callbacks.TensorBoard(logdir)]
    callbacks.append(kseq.callbacks.GradientNorms(logdir))
    if arguments.model != "plain":  # some held-out pairs are watched while it learns
        watched = probe(tokenizer, spread(data.test, NUM_PROBES))
        layers = None
        if arguments.model == "transformer":  # no self-attention
            layers = [block.cross_attention.path for block in model.decoder_blocks]
        maps = kseq.callbacks.AttentionMaps(
            logdir, *watched, layers=layers, font=arguments.font
        )
        callbacks.append(maps)
    start = time.perf_counter()
    model.fit(pairs, validation_data=dev_pairs, epochs=epochs, callbacks=callbacks)
    seconds = time.perf_counter() - start
    model.save(logdir / "translation.keras")

    found = report(model, tokenizer, data.test, logdir, arguments.font)
    save_results(
        logdir / "results.json",
        model=arguments.model,
        parameters=model.count_params(),
        epochs=epochs,
        seconds=seconds,
        **found,
    )
    print(f"\nModel: {logdir / 'translation.keras'}")
    print(f"Dashboard: make tensorboard LOGDIR={logdir}")


if __name__ == "__main__":
    main()
