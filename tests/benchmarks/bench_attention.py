"""Attention of kseq against that of Keras and torch: time, memory and decoding.

Medians in ms of alternating runs, all peers in one process, compiled before; Keras
runs under the same compiler as kseq. What is timed is compared first: outputs and
gradients must equal those of the others; `error` is the worst, relative to the
largest entry. `noise` is the worst median / fastest run of a row: above 1.2 the
machine was not quiet, run it again. Memory is measured in processes of their own.
`make bench-attention` runs all sections on TensorFlow, then on JAX. torch is a peer
where it is installed. A case is batch x tokens x heads x width, causal, in float32.
"""

import argparse
import logging

import keras
import numpy as np
from attention_peers import Case, check_peers, check_prefix, make_peer, peer_names
from keras import ops
from measuring import (
    check_equal,
    gflops,
    headed,
    judged,
    medians,
    peak,
    print_machine,
    print_table,
)

import kseq
from kseq.backend import compiled

# of Keras's time over ours
STEP_GOALS = {1024: ">= 2", 4096: ">= 3", 8192: ">= 3.3"}
MEMORY_TIMES = [2048, 4096, 8192, 16384]
PATH_TIMES = [128, 256, 512, 1024]
KERAS_MEMORY_TIMES = [2048, 4096]
GOALS = {
    "kseq / torch": "<= 1.5",
    "MiB at T = 8192": "<= 400",
    "MiB, T = 16384 / T = 8192": "<= 2.2",
    "MiB": "<= 4000",
    "full / window": ">= 8",
    "MiB, 8 on 1 / 8 on 8": "<= 1",
    "largest / smallest": "<= 1.2",
}
DECODED, SLOTS, STEPS = (16, 1024, 4000), 4096, 8


def step(options):
    """Forward and backward against the peers, at T = 1024, 4096, 8192."""

    def rows():
        for case in options.cases(STEP_GOALS):
            peers = {name: make_peer(name, case) for name in peer_names(case)}
            error = check_peers(case, peers)
            found, noise = medians(
                {n: p.step for n, p in peers.items()}, options.rounds
            )
            ratios = ["no room", "not here"]
            if "keras" in found:
                goal = STEP_GOALS[case.time]
                ratios[0] = judged(found["keras"] / found["kseq"], goal) + f" ({goal})"
            if "torch" in found:
                quotient = found["kseq"] / found["torch"]
                ratios[1] = judged(quotient, GOALS["kseq / torch"])
            times = [found.get(name, "-") for name in ("kseq", "keras", "torch")]
            yield case, *times, *ratios, noise, f"{error:.0e}"

    ratios = ["keras / kseq".ljust(19), headed("kseq / torch", GOALS)]
    columns = ["kseq", "keras", "torch", *ratios, "noise", "error"]
    print_table("Forward and backward, ms", columns, rows())


def memory(options):
    """Peak memory of forward and backward as T grows, at T = 2048 to 16384."""
    ours = {}

    def rows():
        short = Case(1, 1024)
        check_peers(short, {name: make_peer(name, short) for name in ("kseq", "keras")})
        for case in options.cases(MEMORY_TIMES):
            mib, ms = peak_of("kseq", case)
            ours[case.time] = mib
            others = ["-", "-"]
            if case.time in KERAS_MEMORY_TIMES:
                others = peak_of("keras", case)
            yield case, mib, others[0], ms, others[1]

    columns = ["kseq MiB", "keras MiB", "kseq ms", "keras ms"]
    print_table("Peak of forward and backward", columns, rows())
    if 8192 in ours:
        name = "MiB at T = 8192"
        print(headed(name, GOALS), "=", judged(ours[8192], GOALS[name]))
    if {8192, 16384} <= set(ours):
        name = "MiB, T = 16384 / T = 8192"
        quotient = ours[16384] / ours[8192]
        print(headed(name, GOALS), "=", judged(quotient, GOALS[name]))


def peak_of(name, case):
    return peak("attention_memory.py", name, case.time, case.heads, case.groups)


def long(options):
    """A training step of `MultiHeadAttention` at T = 32768: it runs, and in what."""
    case = Case(1, 32768, heads=4, groups=4)

    def rows():
        mib, ms = peak_of("layer", case)
        yield case, judged(mib, GOALS["MiB"]), ms / 1e3

    columns = [headed("MiB", GOALS), "seconds"]
    print_table("Training step of kseq.layers.MultiHeadAttention", columns, rows())


def window(options):
    """Forward and backward in a window of 512 against full, at T = 16384."""

    def rows():
        full = Case(1, 16384)
        peers, errors = {}, []
        for case in (full._replace(window=512), full):
            peers[case] = make_peer("kseq", case)
            errors.append(check_prefix(case, peers[case], 1024))
        found, noise = medians({c: p.step for c, p in peers.items()}, options.rounds)
        windowed, whole = found.values()
        ratio = judged(whole / windowed, GOALS["full / window"])
        yield full, windowed, whole, ratio, noise, f"{max(errors):.0e}"

    columns = ["window", "full", headed("full / window", GOALS), "noise", "error"]
    print_table("A window of 512 in kseq, ms forward and backward", columns, rows())


def grouped(options):
    """Peak memory of 8 query heads on 1 key head against 8 on 8, at T = 4096."""

    def rows():
        case = Case(1, 4096)
        short = Case(1, 1024, groups=1)
        peers = {name: make_peer(name, short) for name in ("kseq", "keras")}
        error = check_peers(short, peers)
        (one, one_ms), (all_heads, all_ms) = (
            peak_of("kseq", case._replace(groups=groups)) for groups in (1, 8)
        )
        ratio = judged(one / all_heads, GOALS["MiB, 8 on 1 / 8 on 8"])
        yield case, one, all_heads, ratio, one_ms, all_ms, f"{error:.0e}"

    ratio = headed("MiB, 8 on 1 / 8 on 8", GOALS)
    columns = ["8 on 1", "8 on 8", ratio, "ms 8 on 1", "ms 8 on 8", "error"]
    print_table("Peak MiB of kseq with few key heads", columns, rows())


def decode(options):
    """One token after 16, 1024, 4000, with a cache of 4096 slots."""

    def rows():
        peer = keras.layers.MultiHeadAttention(8, 64)
        layer = kseq.layers.MultiHeadAttention(8, 64)
        rng = np.random.default_rng(0)
        x = rng.normal(size=(1, max(DECODED) + STEPS, 512)).astype("float32")
        for each in (peer, layer):
            each.build(x.shape, x.shape)
        layer.set_weights(peer.get_weights())
        want = ops.convert_to_numpy(peer(x, x, use_causal_mask=True))
        decoders = {n: Decoder(layer, x, n) for n in DECODED}
        error = max(
            check_equal(f"step {n}", run(), want[:, n + STEPS - 1 : n + STEPS])
            for n, run in decoders.items()
        )
        found, noise = medians(decoders, options.rounds)
        times = [ms / STEPS for ms in found.values()]
        ratio = judged(max(times) / min(times), GOALS["largest / smallest"])
        yield (
            f"{SLOTS} slots, 8 heads of 64",
            *(f"{ms:.2f}" for ms in times),
            ratio,
            noise,
            f"{error:.0e}",
        )

    columns = [f"after {n}" for n in DECODED]
    columns += [headed("largest / smallest", GOALS), "noise", "error"]
    print_table("kseq.layers.MultiHeadAttention, ms a token", columns, rows())


class Decoder:
    """Decodes some tokens after the first n, and returns what the last one gives."""

    def __init__(self, layer, x, n):
        def attend(x, cache, index):
            return layer(x, x, use_causal_mask=True, cache=cache, cache_index=index)

        self.tokens = [
            ops.convert_to_tensor(x[:, i : i + 1]) for i in range(n, n + STEPS)
        ]
        self.indices = [ops.convert_to_tensor(n + i, "int32") for i in range(STEPS)]
        self.attend = compiled(attend, layer.variables)
        _, self.cache = attend(x[:, :n], layer.empty_cache(1, SLOTS), 0)

    def __call__(self):
        cache = self.cache
        for x, index in zip(self.tokens, self.indices):
            y, cache = self.attend(x, cache, index)
        return ops.convert_to_numpy(y)


def paths(options):
    """Plain against blockwise attention, at T = 128 to 1024."""

    def rows():
        for case in options.cases(PATH_TIMES, batch=4):
            names = "kseq", "plain", "keras"
            peers = {name: make_peer(name, case) for name in names}
            error = check_peers(case, peers)
            found, noise = medians(
                {n: p.step for n, p in peers.items()}, options.rounds
            )
            ratio = f"{found['plain'] / found['kseq']:.2f}"
            yield case, *found.values(), ratio, noise, f"{error:.0e}"

    columns = ["blockwise", "plain", "keras", "plain / blockwise", "noise", "error"]
    print_table("Both paths of kseq, ms forward and backward", columns, rows())


SECTIONS = {
    "step": step,
    "memory": memory,
    "long": long,
    "window": window,
    "grouped": grouped,
    "decode": decode,
    "paths": paths,
}


class Options(argparse.Namespace):
    """What the command line says."""

    def cases(self, times, batch=1):
        """Those of the lengths that are asked for."""
        return [Case(batch, t) for t in times if not self.time or t in self.time]


def parse_arguments():
    described = (f"  {name:8} {f.__doc__}" for name, f in SECTIONS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="\n".join(["sections:", *described]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    several = {"action": "append", "default": None}
    times = sorted({*STEP_GOALS, *MEMORY_TIMES, *PATH_TIMES})
    parser.add_argument("--section", choices=SECTIONS, help="default: all", **several)
    parser.add_argument(
        "--time", type=int, choices=times, help="of step, memory, paths", **several
    )
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    return parser.parse_args(namespace=Options())


def main():
    options = parse_arguments()
    # each peer is a function of its own, of which TensorFlow would warn
    logging.getLogger("tensorflow").setLevel("ERROR")
    print_machine(gflops())
    for name in options.section or SECTIONS:
        SECTIONS[name](options)


if __name__ == "__main__":
    main()
