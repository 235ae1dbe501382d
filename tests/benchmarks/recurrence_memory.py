"""Peak memory of one training step, in a process of its own.

    python recurrence_memory.py PEER TIME

prints what `measuring.print_peak` says, for an LSTM 32 x TIME x 128 -> 256.
"""

import sys

from measuring import print_peak
from recurrence_peers import Case, make_peer


def main(name, length):
    cases = (Case("LSTM", 32, time, 128, 256) for time in (8, length))
    print_peak(lambda case: make_peer(name, case).step, *cases)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
