"""Seeds, full float32 products, kept programs, and the package registered."""

import gc

import keras
import pytest

import kseq  # noqa: F401  registers every class


def pytest_configure(config):
    """A GPU rounds float32 products to 10 bits unless it is told not to."""
    # Keras's own variables, under NumPy 2
    config.addinivalue_line(
        "filterwarnings", "ignore:__array__ implementation:DeprecationWarning"
    )
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(False)
    else:
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")
        # most of the time goes to XLA, for the same small programs in many files
        jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(autouse=True)
def seeded():
    """Initializers without a seed draw the same values in every run of a test."""
    keras.utils.set_random_seed(7)


@pytest.fixture(autouse=True, scope="module")
def free_programs():
    """JAX keeps every program that it compiled: 6 GB over the whole suite."""
    yield
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()
        gc.collect()
