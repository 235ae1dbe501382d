"""Keras 3 layers for sequence models: fast under XLA, exact under every mask.

`import kseq` registers every class, so that a saved model loads without
`custom_objects`.
"""

from kseq import (
    callbacks,
    data,
    diagnostics,
    generation,
    layers,
    models,
    ops,
    training,
)

__version__ = "0.1.0"

__all__ = [
    "callbacks",
    "data",
    "diagnostics",
    "generation",
    "layers",
    "models",
    "ops",
    "training",
]
