"""What the benches share: medians of runs in turns, peak memory, tables with goals."""

import argparse
import importlib.metadata
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import keras
import numpy as np
from keras import ops

# of the largest entry of a tensor; right answers are within 1e-5
TOLERANCE = 1e-4


def parse_sections(description, sections, *, rounds):
    """The options of a bench of several sections, each a function with a docstring."""
    described = (f"  {name:10} {f.__doc__}" for name, f in sections.items())
    parser = argparse.ArgumentParser(
        description=description,
        epilog="\n".join(["sections:", *described]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--section", choices=sections, action="append", help="default: all"
    )
    parser.add_argument("--rounds", type=int, default=rounds, help=f"default: {rounds}")
    return parser.parse_args()


def headed(name, goals):
    """A column's name, with its goal if there is one."""
    return f"{name} {goals.get(name, '')}".strip()


def judged(value, goal):
    """A ratio, and whether it meets a goal such as ">= 2"."""
    sign, bound = goal.split()
    met = value >= float(bound) if sign == ">=" else value <= float(bound)
    return f"{value:.2f} {'met' if met else 'NOT met'}"


def print_table(title, columns, rows):
    """Prints each row when it is known."""
    print(f"\n{title}")
    widths = [28, *(max(13 if "=" in name else 9, len(name)) for name in columns)]
    for row in chain([["", *columns]], rows):
        cells = [f"{v:.1f}" if isinstance(v, float) else str(v) for v in row]
        print(cells[0].ljust(widths[0]), end="")
        print(*(c.rjust(w) for c, w in zip(cells[1:], widths[1:])), flush=True)


def medians(functions, rounds):
    """Median ms of each function, which take turns, and the noise.

    The noise is the worst median / fastest run. Each runs twice in its turn, and the
    second run counts: the first one still finds the threads of the peer before it at
    work. Where a run takes a second that is nothing, and one run is enough.
    """
    times = {name: [] for name in functions}
    for _ in range(rounds):
        for name, run in functions.items():
            seconds = _seconds(run)
            times[name].append(seconds if seconds > 1 else _seconds(run))
    found = {name: statistics.median(values) for name, values in times.items()}
    noise = max(found[name] / min(times[name]) for name in times)
    return {name: 1e3 * seconds for name, seconds in found.items()}, f"{noise:.2f}"


def _seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def check_equal(what, got, want):
    """Leaves the program where `got` is not `want`: a wrong answer is not timed."""
    got, want = (np.asarray(a, "float64") for a in (got, want))
    if got.shape != want.shape:
        raise SystemExit(f"{what}: shape {got.shape}, not {want.shape}: not timed")
    error = np.max(np.abs(got - want)) / np.max(np.abs(want))
    if not error <= TOLERANCE:  # NaN is an error too
        raise SystemExit(f"{what}: off by {error:.1e} of the largest: not timed")
    return error


def print_peak(make_step, small, case):
    """Prints the MiB by which a step raises the peak, and the ms of the next one.

    `make_step(case)()` runs it. That of the `small` case runs before, so that most of
    what the compiler needs is not counted; the second step can't be used, for the
    allocators keep what they have.
    """
    make_step(small)()
    step = make_step(case)
    before = _peak_mib()
    step()
    print(_peak_mib() - before, 1e3 * _seconds(step))


def _peak_mib():
    """The peak of this process alone: `ru_maxrss` begins with that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def peak(script, *arguments):
    """MiB and ms that a script of this folder prints, in a process of its own."""
    path = Path(__file__).with_name(script)
    command = [sys.executable, str(path), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    mib, ms = map(float, done.stdout.split())
    return mib, ms


def gflops():
    """Speed of a product of two 2048 x 2048 matrices."""
    matrix = ops.ones((2048, 2048))
    run = {"product": lambda: np.asarray(ops.matmul(matrix, matrix))[0, 0]}
    found, _ = medians(run, 7)
    return 2 * 2048**3 / 1e6 / found["product"]


def print_machine(measured):
    """The machine and the versions; `measured` is what `gflops` returned."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":")[1].strip() for line in lines if "model name" in line]
    model = models[0] if models else platform.processor()
    versions = []
    for package in ("keras", keras.backend.backend(), "torch", "numpy"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {package}: it is no peer here")
    print(f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(*versions, f"backend {keras.backend.backend()}", sep=", ")
    print(f"a product of 2048 x 2048 x 2048 in float32: {measured:.0f} GFLOP/s")
