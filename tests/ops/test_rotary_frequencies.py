"""Frequencies and their scalings: papers' numbers, loops, Hugging Face's values."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
from reference import positions as reference

import kseq
from kseq.ops import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RotaryScaling,
    YaRNScaling,
    rotary_frequencies,
)

GOLDENS = Path(__file__).parents[1] / "goldens" / "rotary_frequencies.json"
SCALINGS = [
    LinearScaling(3.0),
    NTKScaling(3.0),
    DynamicNTKScaling(3.0, 64, length=100),
    YaRNScaling(3.0, 64, beta_fast=9.0, beta_slow=2.0, ramp="turns"),
    YaRNScaling(3.0, 64, attention_factor=1.5),
    Llama3Scaling(3.0, 64, 2.0, 5.0),
]


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-12)


def printed(got, want):
    """To the digits that are printed."""
    np.testing.assert_allclose(got, want, rtol=2e-8)


@pytest.mark.parametrize("d", [4, 6, 22])
@pytest.mark.parametrize("base", [1e4, 5e5])
def test_references(d, base):
    def scaled(scaling, length=None):
        return rotary_frequencies(d, base, scaling, length)

    close(rotary_frequencies(d, base), reference.plain(d, base))
    close(scaled(LinearScaling(3)), reference.linear(d, base, 3))
    close(scaled(NTKScaling(3)), reference.ntk(d, base, 3))
    for n in (1, 63, 64, 65, 200):
        want = reference.dynamic_ntk(d, base, 3, 64, n)
        close(scaled(DynamicNTKScaling(3, 64), n), want)
        close(scaled(DynamicNTKScaling(3, 64, length=n), 999), want)
    # 6 tokens: no wave makes a turn, and the shipped ramp has no width
    close(scaled(YaRNScaling(3, 6)), reference.yarn_as_shipped(d, base, 3, 6))
    for trained in (64, 1024, 8192):
        arguments = (d, base, 3, trained)
        close(
            scaled(YaRNScaling(3, trained, 9, 2)),
            reference.yarn_as_shipped(*arguments, 9, 2),
        )
        close(
            scaled(YaRNScaling(3, trained, ramp="exact_index")),
            reference.yarn_as_shipped(*arguments, rounded=False),
        )
        close(
            scaled(YaRNScaling(3, trained, ramp="turns")),
            reference.yarn_as_published(*arguments),
        )
        close(scaled(Llama3Scaling(3, trained)), reference.llama3(*arguments))
        close(
            scaled(Llama3Scaling(3, trained, 2, 5)), reference.llama3(*arguments, 2, 5)
        )


def test_a_single_frequency_is_one_for_every_base():
    close(rotary_frequencies(2, 1e4, NTKScaling(4)), [1])


@pytest.mark.parametrize("case", json.loads(GOLDENS.read_text())["cases"], ids=str)
def test_hugging_face(case):
    """Frequencies that it computes in float32."""
    scaling = getattr(kseq.ops, case["scaling"])(**case["arguments"])
    got = rotary_frequencies(
        case["rotary_dim"], case["max_wavelength"], scaling, case["length"]
    )
    np.testing.assert_allclose(got, case["frequencies"], rtol=1e-6)
    np.testing.assert_allclose(scaling.gain, case["gain"], rtol=1e-12)


def test_printed_yarn():
    """Base 1e4, d = 128, L = 4096, s = 16: the shipped ramp runs from 20 to 46."""
    scaling = YaRNScaling(16, 4096)
    theta = rotary_frequencies(128, scaling=scaling)
    want = [0.05623413, 0.005673076923, 1.51771605e-4, 8.33450895e-5]
    np.testing.assert_allclose(theta[[20, 32, 45, 46]], want, rtol=5e-8)
    printed(theta.sum(), 7.3652347008)
    printed(scaling.gain, 1.2772588722)
    close(theta[:21], rotary_frequencies(128)[:21])
    close(theta[46:], rotary_frequencies(128)[46:] / 16)


def test_printed_yarn_of_other_ramps():
    """The same case; each ramp fails the numbers of the others."""
    exact = rotary_frequencies(128, scaling=YaRNScaling(16, 4096, ramp="exact_index"))
    np.testing.assert_allclose(exact[32], 0.00569621, rtol=1e-6)
    printed(exact.sum(), 7.3713718)
    turns = rotary_frequencies(128, scaling=YaRNScaling(16, 4096, ramp="turns"))
    np.testing.assert_allclose(turns[32], 0.00229404833, rtol=5e-8)
    printed(turns.sum(), 7.2961465)


def test_printed_yarn_of_few_coordinates():
    """Base 1e4, d = 16, L = 128, s = 8; and the gain of s = 40."""
    scaling = YaRNScaling(8, 128)
    want = [1, 0.22399466, 0.04166667, 0.00395285, 0.00125]
    want += [3.952847e-4, 1.25e-4, 3.952847e-5]
    np.testing.assert_allclose(rotary_frequencies(16, scaling=scaling), want, rtol=1e-6)
    printed(scaling.gain, 1.2079441542)
    printed(YaRNScaling(40, 128).gain, 1.3688879454)
    printed(YaRNScaling(40, 128).gain ** 2, 1.8738542070)
    assert YaRNScaling(1, 128).gain == 1


def test_printed_ntk():
    """Base 1e4, d = 128, s = 4: the base becomes 40889.9424325."""
    theta = rotary_frequencies(128, scaling=NTKScaling(4))
    printed(theta[1] ** -64.0, 40889.9424325)
    printed(theta[[1, 63]], [0.8471171852, 2.8869550e-5])
    printed(theta[63], rotary_frequencies(128)[63] / 4)
    assert theta[0] == 1


def test_printed_dynamic_ntk():
    """s = 2, L = 4096, d = 128: base 30527.7367488 at n = 8192, 1e4 at 4096."""
    scaling = DynamicNTKScaling(2, 4096)
    longer = rotary_frequencies(128, scaling=scaling, length=8192)
    printed(longer[1] ** -64.0, 30527.7367488)
    trained = rotary_frequencies(128, scaling=scaling, length=4096)
    close(trained, rotary_frequencies(128))


def test_printed_llama3():
    """Base 5e5, d = 128, s = 8, L = 8192: indices 29 to 34 are blended."""
    plain = rotary_frequencies(128, 5e5)
    theta = rotary_frequencies(128, 5e5, Llama3Scaling(8, 8192))
    ratios = [1, 0.82816841, 0.64374313, 0.37112228, 0.19021074, 0.125]
    printed((theta / plain)[[28, 29, 30, 32, 34, 35]], ratios)
    printed(theta[32], 5.24846161e-4)
    printed(theta.sum(), 5.3860582007)


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: type(s).__name__)
def test_scalings_are_saved(scaling):
    text = json.dumps(keras.saving.serialize_keras_object(scaling))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    assert again == scaling
    assert type(again) is type(scaling)
    assert json.loads(text)["registered_name"] == f"kseq>{type(scaling).__name__}"


def test_every_scaling_is_tested():
    assert {type(s) for s in SCALINGS} == set(RotaryScaling.__subclasses__())


def test_scalings_are_immutable():
    with pytest.raises(AttributeError, match="cannot assign to field 'scale'"):
        LinearScaling(2).scale = 3


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'factor'"):
        YaRNScaling(2, 64, factor=3)


@pytest.mark.parametrize("scaling", ["yarn", {"scale": 2}, LinearScaling], ids=str)
def test_what_is_no_scaling_is_refused(scaling):
    with pytest.raises(
        TypeError,
        match=r"`scaling` must be a RotaryScaling.*Linear.*YaRNScaling, Llama",
    ):
        rotary_frequencies(4, scaling=scaling)


@pytest.mark.parametrize("scale", [0.5, 0, -1, float("inf"), float("nan")])
def test_scales_are_checked(scale):
    with pytest.raises(ValueError, match="`scale` must be at least 1"):
        LinearScaling(scale)


@pytest.mark.parametrize("make", [DynamicNTKScaling, YaRNScaling, Llama3Scaling])
@pytest.mark.parametrize("length", [0, 1.5, None])
def test_lengths_are_checked(make, length):
    with pytest.raises(ValueError, match="`original_length` must be a positive int"):
        make(2, length)


def test_other_arguments_are_checked():
    with pytest.raises(ValueError, match="`length` must be a positive integer"):
        DynamicNTKScaling(2, 64, length=0)
    with pytest.raises(
        ValueError, match="`ramp` must be one of 'index', 'exact_index', 'turns'"
    ):
        YaRNScaling(2, 64, ramp="linear")
    with pytest.raises(ValueError, match="`beta_fast` must be greater than `beta_slow"):
        YaRNScaling(2, 64, beta_fast=1, beta_slow=32)
    with pytest.raises(ValueError, match="`high_frequency_factor` must be greater"):
        Llama3Scaling(2, 64, low_frequency_factor=4)


def test_dynamic_ntk_without_a_length():
    with pytest.raises(ValueError, match=r"needs the number of tokens.*`length`"):
        rotary_frequencies(4, scaling=DynamicNTKScaling(2, 64))


def test_a_scaling_must_scale():
    with pytest.raises(NotImplementedError, match="RotaryScaling must scale"):
        rotary_frequencies(4, scaling=RotaryScaling(2))
