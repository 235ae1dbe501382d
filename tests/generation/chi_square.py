"""Whether samples have a distribution that is known."""

import numpy as np
from generation.table_model import log_softmax

from kseq.generation import MinP, Temperature, TopK, TopP

# of so many degrees of freedom: a right sampler exceeds it once in 10,000 times
LIMITS = {1: 15.14, 2: 18.42, 3: 21.11, 4: 23.51, 5: 25.74, 6: 27.86, 7: 29.88}


def check_followers(table, prompts, made, filters):
    """Raises unless what follows each id is distributed as table and filters say.

    Args:
        table: logits `(N, N)` of what follows each id.
        prompts: ids `(B, P)`.
        made: ids `(B, L)`.
        filters: those of the sampler.
    """
    previous = np.concatenate([prompts[:, -1:], made[:, :-1]], axis=1)
    probabilities = filtered(table, filters)
    tested = 0
    for last in range(1, len(table)):
        followers = made[previous == last]
        counts = np.bincount(followers, minlength=len(table))
        expected = probabilities[last] * len(followers)
        possible = expected > 0
        assert not counts[~possible].any()
        if expected[possible].min() < 5:
            continue
        statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
        assert statistic < LIMITS[possible.sum() - 1], (last, counts, expected)
        tested += 1
    assert tested >= 3


def filtered(table, filters):
    """Probabilities by the rules of the filters, in float64."""
    z = table.astype("float64").copy()
    z[:, 0] = -np.inf
    p = np.exp(log_softmax(z))
    for filter_ in filters:
        if isinstance(filter_, Temperature):
            p = p ** (1 / filter_.temperature)
        falling = -np.sort(-p)
        if isinstance(filter_, TopK):
            p = np.where(p >= falling[:, filter_.k - 1 : filter_.k], p, 0)
        if isinstance(filter_, MinP):
            p = np.where(p >= filter_.p * falling[:, :1], p, 0)
        if isinstance(filter_, TopP):
            for row in p:
                order = np.argsort(-row)
                row[order[np.cumsum(row[order]) - row[order] >= filter_.p]] = 0
        p = p / p.sum(1, keepdims=True)
    return p
