"""Generation with a GPT-2 of 6 x 512 against keras-hub and transformers on torch.

Tokens a second, from medians of alternating runs, all peers in one process, compiled
before. The tokens of all peers are compared first and must be equal. `noise` is the
worst median / fastest run of a row: above 1.2 the machine was not quiet, run it again.
`make bench-generation` runs all on TensorFlow. keras-hub and transformers are peers
where they are installed.
"""

import logging
import time

import numpy as np
from generation_peers import Case, generator, kseq_model, peer_names
from measuring import (
    gflops,
    headed,
    judged,
    medians,
    parse_sections,
    print_machine,
    print_table,
)

from kseq.generation import BeamSearch

GPT2 = Case(layers=6, width=512, heads=8, vocabulary=1000, prompt=16, new=256)
GOALS = {
    1: {"kseq / hub": ">= 1.5", "kseq / transformers": ">= 1"},
    8: {"kseq / hub": ">= 1.7", "kseq / transformers": ">= 1"},
    "beam 4 / greedy": "<= 4.5",
    "first call, s": "<= 8",
}


def greedy(options):
    """16 + 256 tokens, greedily, 1 and 8 rows."""
    model = kseq_model(GPT2)
    peers = {name: generator(name, model, GPT2) for name in peer_names()}

    def rows():
        for batch in (1, 8):
            prompts = GPT2.prompts(batch)
            made = {name: run(prompts) for name, run in peers.items()}
            for name, ids in made.items():
                if not np.array_equal(ids, made["kseq"]):
                    raise SystemExit(f"{name} makes other tokens: not timed")
            found, noise = medians(
                {name: _call(run, prompts) for name, run in peers.items()},
                options.rounds,
            )
            rates = {n: 1e3 * batch * GPT2.new / ms for n, ms in found.items()}
            ratios = [
                judged(rates["kseq"] / rates[peer], GOALS[batch][f"kseq / {peer}"])
                if peer in rates
                else "not here"
                for peer in ("hub", "transformers")
            ]
            shown = [rates.get(n, "-") for n in ("kseq", "hub", "transformers")]
            yield f"{batch} x (16 + 256)", *shown, *ratios, noise

    columns = ["kseq", "hub", "transformers", "kseq / hub", "kseq / transformers"]
    print_table("Tokens a second", [*columns, "noise"], rows())


def beams(options):
    """The same with 4 beams, against greedily, one row."""
    model, prompts = kseq_model(GPT2), GPT2.prompts(1)
    runs = {
        "greedy": generator("kseq", model, GPT2),
        "beam 4": generator("kseq", model, GPT2, strategy=BeamSearch(4)),
    }
    start = time.perf_counter()
    runs["greedy"](prompts)
    first = time.perf_counter() - start
    runs["beam 4"](prompts)

    def rows():
        found, noise = medians(
            {name: _call(run, prompts) for name, run in runs.items()}, options.rounds
        )
        quotient = found["beam 4"] / found["greedy"]
        yield (
            "1 x (16 + 256)",
            *found.values(),
            judged(quotient, GOALS["beam 4 / greedy"]),
            judged(first, GOALS["first call, s"]),
            noise,
        )

    ratios = [headed(name, GOALS) for name in ("beam 4 / greedy", "first call, s")]
    print_table("Beam search, ms", ["greedy", "beam 4", *ratios, "noise"], rows())


def lengths(options):
    """Greedily to 2,048 tokens: a token's time grows with what it looks back on."""
    windows = {"whole row": None, "window of 256": 256}

    def rows():
        for new in (256, 512, 1008, 2032):
            case = GPT2._replace(new=new)
            prompts, runs = case.prompts(1), {}
            for name, window in windows.items():
                run = generator("kseq", kseq_model(case, window=window), case)
                run(prompts)
                runs[name] = _call(run, prompts)
            found, noise = medians(runs, options.rounds)
            yield f"16 + {new}", *(found[name] / new for name in windows), noise

    print_table("ms a token, rows of any length", [*windows, "noise"], rows())


def _call(run, prompts):
    return lambda: run(prompts)


SECTIONS = {"greedy": greedy, "beams": beams, "lengths": lengths}


def main():
    options = parse_sections(__doc__, SECTIONS, rounds=5)
    logging.getLogger("tensorflow").setLevel("ERROR")
    print_machine(gflops())
    for name in options.section or SECTIONS:
        SECTIONS[name](options)


if __name__ == "__main__":
    main()
