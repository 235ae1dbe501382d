"""Loss and gradient on two devices equal those on one."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

# per-token losses of 1 (four times) and 9 (once): 13/5, and the gradient of 13/5
SCRIPT = """
import json, os
import numpy as np
devices = int(os.environ["DEVICES"])
if os.environ["KERAS_BACKEND"] == "tensorflow":
    import tensorflow as tf
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    names = [f"CPU:{i}" for i in range(devices)]
    strategy = tf.distribute.MirroredStrategy(names)
    scope = strategy.scope()
else:
    import contextlib
    import keras
    scope = contextlib.nullcontext()
    if devices > 1:
        keras.distribution.set_distribution(keras.distribution.DataParallel())
import keras
import kseq
with scope:
    inputs = keras.Input((4, 3))
    if os.environ["LOSS"] == "chunked":
        head = keras.layers.Dense(3, use_bias=False)
        head.build((None, None, 3))
        model = kseq.training.VocabularyTrainer(keras.layers.Identity(), head)
        options = {}
    else:
        head = keras.layers.EinsumDense("btn,nm->btm", (None, 3))
        model = keras.Model(inputs, head(inputs))
        options = dict(
            loss=kseq.training.MaskedCrossentropy(),
            metrics=[kseq.training.TokenCrossentropy()],
        )
    head.set_weights([np.eye(3, dtype="float32")])
    model.compile(keras.optimizers.SGD(1.0), jit_compile=False, **options)
logits = np.zeros((2, 4, 3), "float32")
logits[..., 0] = -30
logits[0, :, 2], logits[1, :, 2] = np.log(np.expm1(1)), np.log(np.expm1(9))
targets = np.array([[1, 1, 1, 1], [1, 0, 0, 0]])
history = model.fit(logits, targets, batch_size=2, verbose=0, shuffle=False)
print(json.dumps({
    "loss": history.history["loss"][0],
    "metric": history.history["token_crossentropy"][0],
    "kernel": model.get_weights()[0].tolist(),
}))
"""


def fit(devices, loss):
    environment = {
        **os.environ,
        "DEVICES": str(devices),
        "LOSS": loss,
        "KERAS_BACKEND": keras.backend.backend(),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def expected_kernel():
    """Identity minus the gradient of the token mean, in float64."""
    logits = np.zeros((2, 4, 3))
    logits[..., 0] = -30
    logits[0, :, 2], logits[1, :, 2] = np.log(np.expm1(1)), np.log(np.expm1(9))
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    slope = (probabilities - np.eye(3)[1]) / 5
    slope[1, 1:] = 0
    return np.eye(3) - np.einsum("btn,btm->nm", logits, slope)


@pytest.mark.parametrize(
    "loss", ["plain", pytest.param("chunked", marks=pytest.mark.slow)]
)
def test_two_devices_count_tokens_as_one_does(loss):
    result = fit(2, loss)
    np.testing.assert_allclose(result["loss"], 2.6, rtol=1e-5)
    np.testing.assert_allclose(result["metric"], 2.6, rtol=1e-5)
    np.testing.assert_allclose(result["kernel"], expected_kernel(), rtol=1e-4)
