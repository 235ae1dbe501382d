"""Other inputs than those that a model was given."""

import numpy as np

from kseq._checks import message


def other_values(name: str, x: np.ndarray) -> np.ndarray:
    """An array like `x` that differs from it everywhere, the same at each call.

    Ids are exchanged for other ids of `x` that are not 0; a float moves by a normal
    value as large as the floats of `x` are.
    """
    random = np.random.default_rng(0)
    if np.issubdtype(x.dtype, np.floating):
        return x + like_noise(x, random)
    ids = np.unique(x[x != 0]) if x.dtype.kind in "iu" else x[:0]
    if len(ids) < 2:
        raise ValueError(
            message(
                f"`{name}` must be floats, or ids of which two at least differ and are "
                "not 0.",
                dtype=str(x.dtype),
                ids=ids.tolist(),
            )
        )
    step = random.integers(1, len(ids), x.shape)
    other = ids[(np.searchsorted(ids, x) + step) % len(ids)]
    return np.where(x == 0, ids[step], other).astype(x.dtype)


def like_noise(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Normal numbers of the size of those in `x`, at least of size 1, in its dtype."""
    size = max(1.0, float(np.std(np.asarray(x, "float64"))))
    return (size * random.normal(size=x.shape)).astype(x.dtype)


def check_some_finite(outputs: list[np.ndarray]) -> None:
    """Refuses outputs that are all NaN or infinite: no change could be seen."""
    if not any(np.isfinite(y.astype("float64")).any() for y in outputs):
        raise ValueError(
            message(
                "The outputs must be finite somewhere: no change of others is seen.",
                outputs=[y.shape for y in outputs],
            )
        )
