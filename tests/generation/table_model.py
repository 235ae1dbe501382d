"""A language of bigrams, whose every probability is written down."""

from itertools import pairwise, product

import numpy as np
from keras import ops

END = 2


class TableModel:
    """The next id depends on the last one, by a table of logits, and on the row."""

    def __init__(self, table):
        self.table = np.asarray(table, "float32")
        self.variables = []

    def start(self, prompt_ids, max_new_tokens):
        del max_new_tokens
        # the state counts the steps and keeps the first id of each row's prompt
        return prompt_ids[:, -1], {"t": 0 * prompt_ids[0, 0], "row": prompt_ids[:, 0]}

    def step(self, token_ids, state):
        tables = ops.take(ops.convert_to_tensor(self.table), state["row"], axis=0)
        rows = ops.take_along_axis(tables, token_ids[:, None, None], axis=1)
        return rows[:, 0], {**state, "t": state["t"] + 1}

    def read(self, token_ids, state):
        logits = [self.step(ids, state)[0] for ids in ops.unstack(token_ids, axis=1)]
        return ops.stack(logits, axis=1), {**state, "t": state["t"] + len(logits)}

    def rewind(self, state, counts):
        return {**state, "t": state["t"] - counts}


def log_softmax(logits):
    """Float64, over the last axis."""
    logits = np.asarray(logits, "float64")
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def all_rows(table, last, length):
    """Every row after `last` that has ended, or has `length` ids, and its log P."""
    log_p = log_softmax(table)
    found = {}
    ids = range(1, table.shape[-1])
    for n in range(1, length + 1):
        for row in product(ids, repeat=n):
            whole = END not in row[:-1] and (row[-1] == END or n == length)
            if whole:
                path = (last, *row)
                found[row] = sum(log_p[a, b] for a, b in pairwise(path))
    return found
