"""Peak memory of one training step, in a process of its own.

    python recurrence_memory.py PEER TIME

prints, for an LSTM 32 x TIME x 128 -> 256, the MiB by which the step raises the peak
of the process, and the ms of the step after it. A step over 8 time steps runs before,
so that most of what the compiler needs is not counted; the second step can't be used,
for the allocators keep what they have.
"""

import re
import sys
import time
from pathlib import Path

from recurrence_peers import Case, make_peer


def peak_mib():
    """The peak of this process alone: `ru_maxrss` begins with that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def main(name, length):
    make_peer(name, Case("LSTM", 32, 8, 128, 256)).step()
    peer = make_peer(name, Case("LSTM", 32, length, 128, 256))
    before = peak_mib()
    peer.step()
    mib, start = peak_mib() - before, time.perf_counter()
    peer.step()
    print(mib, 1e3 * (time.perf_counter() - start))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
