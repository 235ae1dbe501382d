"""Scores a translation model: BLEU and chrF by length, samples, an alignment.

Each English sentence of the test part is translated once and compared with all its
German translations. `train_translation.py` calls this when it has trained a model.
"""

import argparse
import json
from pathlib import Path

import keras

import kseq
from kseq.callbacks.attention_picture import AttentionPanel, attention_png

DECODE_BATCH, MAX_TOKENS = 256, 100
QUICK_PAIRS = 300  # of each part
NUM_SAMPLES = 12
PICTURED, PICTURED_WORDS = 300, 10  # sentences to choose the picture from, their words


def add_shared_arguments(parser):
    add = parser.add_argument
    add("--pairs", metavar="FILE", default="deu-eng.zip", help="lines of English, tab, "
        "German: a text or a .zip of one (default: deu-eng.zip)")  # fmt: skip
    add("--font", metavar="FILE", help="TrueType font for the pictures, such as "
        "DejaVuSans.ttf (default: that of Pillow, without umlauts)")  # fmt: skip
    add("--quick", action="store_true", help="seconds: a tiny model, a few pairs")


def load_pairs(parser, arguments):
    try:
        data = kseq.data.load_parallel(arguments.pairs)
    except (FileNotFoundError, ValueError) as error:
        parser.error(str(error))
    if arguments.quick:
        data = kseq.data.ParallelData(*(spread(part, QUICK_PAIRS) for part in data))
    return data


def spread(items, count):
    """About `count` of them, evenly spaced."""
    return items[:: max(1, len(items) // count)]


def probe(tokenizer, pairs):
    """One batch of the pairs in their order, and its German and English tokens."""
    english, german = (
        [tokenizer.encode(text) for text in side] for side in zip(*pairs)
    )
    batch = kseq.data.BucketedPairs(
        english, german, batch_size=len(pairs), num_buckets=1, shuffle=False
    )
    tokens = [
        [[*tokenizer.tokens(ids), "</s>"] for ids in side] for side in (german, english)
    ]
    return batch[0][0], *tokens


def translate(model, tokenizer, sentences):
    """What the model makes of each sentence, as a dict."""
    sentences = sorted(sentences, key=len)  # a batch of short ones takes few steps
    ids = [[*tokenizer.encode(sentence), model.end_id] for sentence in sentences]
    made = model.generate(ids, max_length=MAX_TOKENS, batch_size=DECODE_BATCH)
    rows = map(tokenizer.decode, made.token_ids)
    return {s: row.strip() for s, row in zip(sentences, rows)}


def draw_alignment(model, tokenizer, pairs, path, font):
    """Draws the attention of the pair whose alignment crosses most."""
    x, *tokens = probe(tokenizer, pairs)
    # the last one: that of the Transformer's last block to the source
    *_, weights = kseq.diagnostics.attention_maps(model, x).values()
    weights = weights.mean(axis=1) if weights.ndim == 4 else weights
    sentences, _ = zip(*pairs)
    panels = map(AttentionPanel, sentences, weights, *tokens)

    def crossing(panel):
        rows, columns = len(panel.query_tokens) - 1, len(panel.key_tokens) - 1
        return kseq.diagnostics.alignment_crossing(panel.weights[:rows, :columns])

    panel = max(panels, key=crossing)
    path.write_bytes(attention_png(panel, font))
    print(f"\nAlignment of: {panel.title}\n{path}")


def report(model, tokenizer, pairs, logdir, font):
    """Prints scores and samples, draws an alignment; returns what is printed."""
    references = {}
    for english, german in pairs:
        references.setdefault(english, []).append(german)
    sources, known = list(references), list(references.values())
    german = translate(model, tokenizer, sources)
    texts = [german[source] for source in sources]
    score = kseq.data.translation_score(texts, known)
    table = kseq.data.translation_score_by_length(sources, texts, known)
    print(f"\nHeld out: {score}\n{score.bleu_signature}\n{score.chrf_signature}")
    for (fewest, most), part in table.items():
        print(f"{fewest:2} to {most:2} words: {part}")
    samples = [(s, german[s], references[s][0]) for s in spread(sources, NUM_SAMPLES)]
    print("\nEnglish, model, reference:", *map("\n".join, samples), sep="\n\n")

    if getattr(model, "attention", True):  # None in the plain model
        sentences = [s for s in german if len(s.split()) <= PICTURED_WORDS]
        right = [s for s in sentences if german[s] in references[s]]
        # the longest: `translate` sorts
        chosen = [(s, german[s]) for s in (right or sentences)[-PICTURED:]]
        draw_alignment(model, tokenizer, chosen, logdir / "alignment.png", font)
    by_length = [
        dict(words=words, sentences=part.sentences, bleu=part.bleu, chrf=part.chrf)
        for words, part in table.items()
    ]
    return {**vars(score), "by_length": by_length, "samples": samples}


def save_results(path, **results):
    """Writes them beside what is there already."""
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    text = json.dumps(known | results, indent=1, ensure_ascii=False)
    path.write_text(text, "utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logdir", type=Path, required=True,
        help="of train_translation.py: its model is read, results.json and "
        "alignment.png are written")  # fmt: skip
    add_shared_arguments(parser)
    arguments = parser.parse_args()
    logdir, data = arguments.logdir, load_pairs(parser, arguments)
    model = keras.saving.load_model(logdir / "translation.keras")
    tokenizer = kseq.data.BytePairTokenizer.load(logdir / "vocabulary.json")
    found = report(model, tokenizer, data.test, logdir, arguments.font)
    save_results(logdir / "results.json", **found)


if __name__ == "__main__":
    main()
