"""Crossentropy over a vocabulary in float64, token by token, with its gradients.

The smoothed target distribution is that of Szegedy et al. (2016, section 7), the
z-loss that of Chowdhery et al. (2022, section 5).
"""

import numpy as np


def token_loss(logits, target, smoothing=0.0, z_loss=0.0):
    """The loss of one token, and its gradient with respect to the logits `(N,)`."""
    size = len(logits)
    wanted = np.full(size, smoothing / size)
    wanted[target] += 1 - smoothing
    normalizer = np.log(np.sum(np.exp(logits - logits.max()))) + logits.max()
    log_probs = logits - normalizer
    loss = -np.sum(wanted * log_probs) + z_loss * normalizer**2
    slope = np.exp(log_probs) * (1 + 2 * z_loss * normalizer) - wanted
    return loss, slope


def vocabulary_crossentropy(
    hidden, kernel, targets, counts, bias=None, upstream=None, smoothing=0.0, z_loss=0.0
):
    """Losses `(B, T)`, and gradients of hidden, kernel and bias.

    `upstream` is the gradient of the losses; `kernel` is `(D, N)`.
    """
    hidden, kernel = (np.asarray(x, "float64") for x in (hidden, kernel))
    bias = np.zeros(kernel.shape[1]) if bias is None else np.asarray(bias, "float64")
    upstream = np.ones(targets.shape) if upstream is None else upstream
    losses = np.zeros(targets.shape)
    found = np.zeros(hidden.shape), np.zeros(kernel.shape), np.zeros(bias.shape)
    for b, t in np.ndindex(targets.shape):
        if counts[b, t]:
            logits = hidden[b, t] @ kernel + bias
            losses[b, t], slope = token_loss(logits, targets[b, t], smoothing, z_loss)
            slope = slope * upstream[b, t]
            found[0][b, t] = kernel @ slope
            found[1][:] += np.outer(hidden[b, t], slope)
            found[2][:] += slope
    return losses, found
