"""LSTM, GRU and SimpleRNN of kseq against those of Keras and torch.

Medians in ms of alternating runs, all peers in one process, compiled before. What is
timed is compared first: outputs and weight gradients must equal those of the Keras
twin with the same weights; `error` is the worst, relative to the largest entry.
`floor` is what the products alone take at the speed of a large one. `noise` is the
worst median / fastest run of a row: above 1.2 the machine was not quiet, run it again.
`make bench-recurrence` runs all sections on TensorFlow, then on JAX. torch is a peer
where it is installed.
"""

import argparse
import logging
import time

import keras
import numpy as np
from layer_peer import layer_peer
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
from recurrence_peers import GATES, Case, check_peers, make_peer, peer_names

import kseq

SIZES = [(32, 128, 128, 256), (64, 50, 256, 512), (8, 1000, 64, 128)]
MEMORY_TIMES = [128, 512, 2048]
# of Keras's time over ours, a training step, at each of the sizes
STEP_GOALS = {
    "LSTM": [2.1, 1.5, 2.7],
    "GRU": [1.8, 1.4, 2.5],
    "SimpleRNN": [1.7, 1.3, 2.2],
}
GOALS = {
    "forward, keras / kseq": ">= 1.7",
    "forward, kseq / torch": "<= 1.25",
    "masked / no mask": "<= 1.15",
    "dropout / none": "<= 1.25",
    "kseq, seconds": "<= 5",
    "MiB, kseq / faster keras": "<= 1",
    "MiB of kseq, T = 2048 / T = 512": "<= 4.4",
    "LSTM / MinGRU": ">= 5",
}


def best_keras(found):
    return min(found[name] for name in ("keras", "keras jit") if name in found)


def goals(case, training):
    """For Keras's time over ours, and ours over torch's."""
    if not training:
        return GOALS["forward, keras / kseq"], GOALS["forward, kseq / torch"]
    sizes = [Case(case.kind, *size) for size in SIZES]
    on_tensorflow = keras.backend.backend() == "tensorflow"
    keras_goal = STEP_GOALS[case.kind][sizes.index(case)] if on_tensorflow else 2.0
    return f">= {keras_goal}", f"<= {1.2 if case.kind == 'LSTM' else 0.9}"


def compare(title, training, options):
    """All peers."""
    names = peer_names()

    def rows():
        for case in options.cases:
            peers = {name: make_peer(name, case) for name in names}
            error = check_peers(case, peers)
            runs = {n: p.step if training else p.forward for n, p in peers.items()}
            found, noise = medians(runs, options.rounds)
            floor = 1e3 * case.gflop(training) / options.gflops
            quotients = [best_keras(found) / found["kseq"]]
            if "torch" in found:
                quotients.append(found["kseq"] / found["torch"])
            shown = [
                f"{judged(value, goal)} ({goal})"
                for value, goal in zip(quotients, goals(case, training))
            ]
            yield case, floor, *found.values(), *shown, noise, f"{error:.0e}"

    ratios = ["keras / kseq", "kseq / torch"][: 1 + ("torch" in names)]
    columns = [name.ljust(21) for name in ratios]
    print_table(title, ["floor", *names, *columns, "noise", "error"], rows())


def step(options):
    """Forward and the gradient of all weights."""
    compare("Training step, ms", True, options)


def forward(options):
    """Forward only."""
    compare("Forward only, ms", False, options)


def masked(options):
    """A training step on rows of random lengths, against one without a mask."""

    def rows():
        for case in options.cases:
            tensors = {"mask": case.mask()}
            peers = {n: make_peer(n, case, tensors) for n in ("kseq", "keras")}
            error = check_peers(case, peers)
            plain = make_peer("kseq", case)
            plain.step()
            functions = {"masked": peers["kseq"].step, "plain": plain.step}
            found, noise = medians(functions, options.rounds)
            ratio = judged(found["masked"] / found["plain"], GOALS["masked / no mask"])
            yield case, *found.values(), ratio, noise, f"{error:.0e}"

    columns = ["masked", "no mask", headed("masked / no mask", GOALS), "noise", "error"]
    print_table("Masked training step of kseq, ms", columns, rows())


def dropout(options):
    """A training step with `recurrent_dropout=0.1`, against one without."""

    def rows():
        for case in options.cases:
            # what is dropped differs from Keras, so the layers are compared without
            both = {
                name: make_peer(name, case, recurrent_dropout=0.1, training=False)
                for name in ("kseq", "keras")
            }
            error = check_peers(case, both)
            plain = make_peer("kseq", case, training=True)
            dropped = make_peer("kseq", case, recurrent_dropout=0.1, training=True)
            outputs = [np.asarray(p.forward())[:, 1:] for p in (plain, dropped)]
            if np.mean(outputs[0] != outputs[1]) < 0.9:
                raise SystemExit(f"{case}: nothing is dropped: not timed")
            for peer in plain, dropped:
                peer.step()
            functions = {"dropout": dropped.step, "plain": plain.step}
            found, noise = medians(functions, options.rounds)
            ratio = judged(found["dropout"] / found["plain"], GOALS["dropout / none"])
            yield case, *found.values(), ratio, noise, f"{error:.0e}"

    columns = ["dropout 0.1", "none", headed("dropout / none", GOALS), "noise", "error"]
    print_table("Recurrent dropout in kseq, ms a training step", columns, rows())


def compile_time(options):
    """The first training step at T = 1000, in seconds."""
    names = [name for name in peer_names() if name != "torch"]

    def rows():
        for case in options.cases:
            seconds, gradients = {}, {}
            for name in names:
                peer = make_peer(name, case)
                start = time.perf_counter()
                gradients[name] = peer.gradients(peer.step())
                seconds[name] = time.perf_counter() - start
            for got, want in zip(gradients["kseq"], gradients["keras"]):
                check_equal(f"{case}, gradient", got, want)
            others = (seconds[name] for name in names[1:])
            yield case, judged(seconds["kseq"], GOALS["kseq, seconds"]), *others

    columns = [headed("kseq, seconds", GOALS), *names[1:]]
    print_table("First training step, seconds", columns, rows())


def memory(options):
    """Peak memory of a training step as T grows; sizes 1, 2, 3: T = 128, 512, 2048."""
    names = [name for name in peer_names() if name != "torch"]
    lengths = [MEMORY_TIMES[size - 1] for size in options.size or (1, 2, 3)]
    ours = {}

    def rows():
        for length in lengths:
            measured = (peak("recurrence_memory.py", name, length) for name in names)
            mib, ms = (dict(zip(names, found)) for found in zip(*measured))
            ours[length] = mib["kseq"]
            share = mib["kseq"] / mib[min(names[1:], key=ms.get)]
            ratio = judged(share, GOALS["MiB, kseq / faster keras"])
            yield f"T = {length}", *mib.values(), *ms.values(), ratio

    columns = [f"{name} {unit}" for unit in ("MiB", "ms") for name in names]
    columns.append(headed("MiB, kseq / faster keras", GOALS))
    print_table("Peak of a training step, LSTM 32xTx128->256", columns, rows())
    if {512, 2048} <= set(ours):
        name = "MiB of kseq, T = 2048 / T = 512"
        print(headed(name, GOALS), "=", judged(ours[2048] / ours[512], GOALS[name]))


def mingru(options):
    """`MinGRU` against `LSTM` at T = 4096, a training step."""

    def rows():
        case = Case("LSTM", 8, 4096, 64, 128)
        check_peers(case, {name: make_peer(name, case) for name in ("kseq", "keras")})
        x, factors, _ = case.arrays()
        layer = kseq.layers.MinGRU(case.units, return_sequences=True)
        layer.build(x.shape)
        minimal = layer_peer(layer, x, factors)
        # the scan is parallel: a prefix alone must give the same, step for step
        prefix = layer_peer(layer, x[:, :67], factors[:, :67]).forward()
        error = check_equal("MinGRU", np.asarray(minimal.forward())[:, :67], prefix)
        lstm = make_peer("kseq", case)
        functions = {"MinGRU": minimal.step, "LSTM": lstm.step}
        for run in functions.values():
            run()
        found, noise = medians(functions, options.rounds)
        ratio = judged(found["LSTM"] / found["MinGRU"], GOALS["LSTM / MinGRU"])
        yield str(case)[5:], *found.values(), ratio, noise, f"{error:.0e}"

    columns = ["MinGRU", "LSTM", headed("LSTM / MinGRU", GOALS), "noise", "error"]
    print_table("MinGRU and LSTM of kseq, ms a training step", columns, rows())


# name, function, cells and sizes (from 1) that it runs unless told otherwise
SECTIONS = {
    "step": (step, list(GATES), [1, 2, 3]),
    "forward": (forward, list(GATES), [1, 2, 3]),
    "masked": (masked, ["LSTM", "GRU"], [1]),
    "dropout": (dropout, ["LSTM", "GRU"], [1]),
    "compile": (compile_time, list(GATES), [3]),
    "memory": (memory, [], []),
    "mingru": (mingru, [], []),
}


def parse_arguments():
    described = (f"  {name:8} {f.__doc__}" for name, (f, _, _) in SECTIONS.items())
    sizes = (f"  {i} {Case('', *s)}" for i, s in enumerate(SIZES, 1))
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="\n".join(["sections:", *described, "sizes (B x T x D->U):", *sizes]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    several = {"action": "append", "default": None}
    parser.add_argument("--section", choices=SECTIONS, help="default: all", **several)
    parser.add_argument("--cell", choices=GATES, **several)
    parser.add_argument("--size", type=int, choices=[1, 2, 3], **several)
    parser.add_argument("--rounds", type=int, default=11, help="default: 11")
    return parser.parse_args()


def main():
    options = parse_arguments()
    # each peer is a function of its own, of which TensorFlow would warn
    logging.getLogger("tensorflow").setLevel("ERROR")
    options.gflops = gflops()
    print_machine(options.gflops)
    for name in options.section or SECTIONS:
        run, cells, sizes = SECTIONS[name]
        options.cases = [
            Case(kind, *SIZES[size - 1])
            for kind in options.cell or cells
            for size in options.size or sizes
        ]
        run(options)


if __name__ == "__main__":
    main()
