"""A Transformer's training step against keras-hub and torch; a large vocabulary's loss.

Medians in ms of alternating runs, all peers in one process, compiled before. What is
timed is compared first: the losses of the first steps, from the same weights, must be
equal; `error` is the worst. `floor` is what the products alone take at the speed of a
large one. `noise` is the worst median / fastest run of a row: above 1.2 the machine was
not quiet, run it again. Memory is measured in processes of their own. `make
bench-transformer` runs all on TensorFlow. torch and keras-hub are peers where they are
installed.
"""

import logging

import vocabulary_memory
from measuring import (
    check_equal,
    gflops,
    headed,
    judged,
    medians,
    parse_sections,
    peak,
    print_machine,
    print_table,
)
from transformer_peers import Case, check_peers, make_peer, peer_names

DECODER = Case(
    layers=6,
    width=512,
    heads=8,
    intermediate=2048,
    vocabulary=1000,
    batch=8,
    time=256,
)
VOCABULARY = (2048, 32_000, 512)  # tokens, vocabulary, width
GOALS = {
    "kseq / better hub": "<= 0.8",
    "kseq / torch": "<= 1.15",
    "MiB, chunked / plain": "<= 0.25",
    "ms, chunked / plain": "<= 1.2",
}


def step(options):
    """A training step with Adam of a decoder: 6 layers of 512, 8 x 256 tokens."""

    def rows():
        names = peer_names()
        peers = {name: make_peer(name, DECODER) for name in names}
        error = check_peers(peers)
        found, noise = medians({n: p.step for n, p in peers.items()}, options.rounds)
        hub = [found[name] for name in ("hub", "hub jit") if name in found]
        ratios = ["not here", "not here"]
        if hub:
            quotient = found["kseq"] / min(hub)
            ratios[0] = judged(quotient, GOALS["kseq / better hub"])
        if "torch" in found:
            ratios[1] = judged(found["kseq"] / found["torch"], GOALS["kseq / torch"])
        floor = 1e3 * DECODER.gflop() / options.gflops
        times = [found.get(name, "-") for name in ("kseq", "hub", "hub jit", "torch")]
        yield "6 x 512", floor, *times, *ratios, noise, f"{error:.0e}"
        yield "parameters", "", *(f"{p.parameters:,}" for p in peers.values())

    ratios = [headed(name, GOALS) for name in ("kseq / better hub", "kseq / torch")]
    columns = ["floor", "kseq", "hub", "hub jit", "torch", *ratios, "noise", "error"]
    print_table("Training step, ms", [c.rjust(11) for c in columns], rows())


def vocabulary(options):
    """The loss over 32,000 words in chunks, against that of all logits."""

    def rows():
        for plain, chunked in (("plain", "chunked"), ("plain-tied", "tied")):
            peers = {n: vocabulary_memory.make_peer(n, *VOCABULARY)
                     for n in (plain, chunked)}  # fmt: skip
            losses, gradients = zip(
                *((p.forward(), p.gradients(p.step())) for p in peers.values())
            )
            error = check_equal("loss", losses[1], losses[0])
            for got, want in zip(gradients[1], gradients[0]):
                error = max(error, check_equal("gradient", got, want))
            found, noise = medians(
                {n: p.step for n, p in peers.items()}, options.rounds
            )
            mib = {n: peak("vocabulary_memory.py", n, *VOCABULARY)[0] for n in peers}
            ratios = [
                judged(mib[chunked] / mib[plain], GOALS["MiB, chunked / plain"]),
                judged(found[chunked] / found[plain], GOALS["ms, chunked / plain"]),
            ]
            yield (
                chunked,
                *mib.values(),
                *found.values(),
                *ratios,
                noise,
                f"{error:.0e}",
            )

    ratios = [headed(n, GOALS) for n in ("MiB, chunked / plain", "ms, chunked / plain")]
    columns = ["plain MiB", "MiB", "plain ms", "ms", *ratios, "noise", "error"]
    print_table("Loss and gradients over 32,000 words", columns, rows())


SECTIONS = {"step": step, "vocabulary": vocabulary}


def main():
    options = parse_sections(__doc__, SECTIONS, rounds=7)
    # each peer is a function of its own, of which TensorFlow would warn
    logging.getLogger("tensorflow").setLevel("ERROR")
    options.gflops = gflops()
    print_machine(options.gflops)
    for name in options.section or SECTIONS:
        SECTIONS[name](options)


if __name__ == "__main__":
    main()
