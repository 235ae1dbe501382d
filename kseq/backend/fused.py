"""Whether the device has a fused kernel for attention."""

from kseq.backend.half import half


def has_fused_attention() -> bool:
    """True on JAX with a GPU or TPU, where `keras.ops.dot_product_attention` picks it.

    TensorFlow has none, and JAX has none for a processor.
    """
    return half(tensorflow=lambda: False, jax=_jax_has_fused)()


def _jax_has_fused() -> bool:
    import jax

    return jax.default_backend() != "cpu"
