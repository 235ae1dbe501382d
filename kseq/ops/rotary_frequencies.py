"""Frequencies of rotary embeddings, as trained and scaled to longer texts."""

from dataclasses import asdict, dataclass
from typing import Any, Self

import keras
import numpy as np

from kseq._checks import check_choice, check_size, message
from kseq.ops.position_angles import geometric_frequencies


@dataclass(frozen=True)
class RotaryScaling:
    """Changes the frequencies of a rotary embedding for texts `scale` times as long.

    Base: a subclass gives `frequencies`, and `gain` if cosine and sine are to be
    multiplied by one. It is immutable and saved with the layer that holds it.

    Args:
        scale: float, at least 1. s, the length wanted by the length trained for.

    Raises:
        ValueError: `` `scale` must be at least 1... ``
    """

    scale: float

    def __post_init__(self) -> None:
        if not 1 <= self.scale < float("inf"):
            raise ValueError(
                message(
                    "`scale` must be at least 1.",
                    fix="It is the length wanted by the length trained for.",
                    scale=self.scale,
                )
            )

    @property
    def gain(self) -> float:
        """What cosine and sine are multiplied by."""
        return 1.0

    def frequencies(
        self, theta: np.ndarray, max_wavelength: float, length: int | None
    ) -> np.ndarray:
        """The scaled frequencies, float64 `(R / 2,)`.

        Args:
            theta: float64 `(R / 2,)`. `max_wavelength ** (-2i / R)`, as trained.
            max_wavelength: float.
            length: int. How many tokens there are; None if that is not known.
        """
        raise NotImplementedError(f"{type(self).__name__} must scale the frequencies.")

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this scaling."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The scaling that `get_config` describes."""
        return cls(**config)


@keras.saving.register_keras_serializable(package="kseq")
@dataclass(frozen=True)
class LinearScaling(RotaryScaling):
    """Position interpolation: all frequencies s times lower.

        theta'_i = theta_i / s

    Args:
        scale: float, at least 1. s.

    References:
        Chen et al., 2023, "Extending context window of large language models via
        positional interpolation", arXiv:2306.15595.
    """

    def frequencies(
        self, theta: np.ndarray, max_wavelength: float, length: int | None
    ) -> np.ndarray:
        """See `RotaryScaling.frequencies`."""
        return theta / self.scale


@keras.saving.register_keras_serializable(package="kseq")
@dataclass(frozen=True)
class NTKScaling(RotaryScaling):
    """NTK-aware: the base grows, so that the last frequency falls by s, the first by 1.

        theta'_i = (b s^{R / (R - 2)})^{-2i / R} = theta_i s^{-i / (R / 2 - 1)}

    with the base b = `max_wavelength` and R = `rotary_dim`.

    Args:
        scale: float, at least 1. s.

    References:
        Peng et al., 2023, "YaRN", arXiv:2309.00071, section 3.1.
    """

    def frequencies(
        self, theta: np.ndarray, max_wavelength: float, length: int | None
    ) -> np.ndarray:
        """See `RotaryScaling.frequencies`."""
        return _longer_base(theta, self.scale)


@keras.saving.register_keras_serializable(package="kseq")
@dataclass(frozen=True)
class DynamicNTKScaling(RotaryScaling):
    """NTK-aware, with a scale that follows the number of tokens n.

        s_n = max(1, s n / L - (s - 1));  theta'_i = theta_i s_n^{-i / (R / 2 - 1)}

    Up to n = L the frequencies are those of training. n is `length` if that is
    given, and else the number T of tokens of the call, which must be static and
    counted from position 0. A cached key was turned with the frequencies of its own
    call: for generation give the `length` that the text will have at most, then each
    step equals the full run.

    Args:
        scale: float, at least 1. s.
        original_length: int. L, the number of tokens trained for.
        length: int. Freezes n. Defaults to `None`, the T of the call.

    Raises:
        ValueError: `` Dynamic NTK scaling needs the number of tokens... ``,
            `` `scale` must be at least 1... `` and
            `` `original_length` must be a positive integer. `` (`length` alike)

    References:
        Peng et al., 2023, "YaRN", arXiv:2309.00071, section 3.3; the formula of
        s_n is that of the code released with it.
    """

    original_length: int
    length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("original_length", self.original_length)
        if self.length is not None:
            check_size("length", self.length)

    def frequencies(
        self, theta: np.ndarray, max_wavelength: float, length: int | None
    ) -> np.ndarray:
        """See `RotaryScaling.frequencies`."""
        n = length if self.length is None else self.length
        if n is None:
            raise ValueError(
                message(
                    "Dynamic NTK scaling needs the number of tokens.",
                    fix="It isn't known with `start_index`, `positions` or a time "
                    "axis of None: freeze it with `length`.",
                    scaling=self,
                )
            )
        stretch = self.scale * n / self.original_length - (self.scale - 1)
        return _longer_base(theta, max(1.0, stretch))


@keras.saving.register_keras_serializable(package="kseq")
@dataclass(frozen=True)
class YaRNScaling(RotaryScaling):
    """YaRN: fast waves stay, slow ones are s times lower, a ramp joins them.

        theta'_i = (1 - g_i) theta_i + g_i theta_i / s
        cos, sin -> m cos, m sin;  m = 0.1 ln s + 1

    so that the scores are multiplied by m^2. With L tokens trained for, wave i makes
    r_i = L theta_i / 2 pi turns. The ramp g falls from 1, at `beta_slow` turns, to 0,
    at `beta_fast`:

    - `"index"`: linear in i, between bounds rounded outwards to whole i, as in the
      code of the authors, of Llama, Qwen and DeepSeek models;
    - `"exact_index"`: the same between bounds that are not rounded, as in gpt-oss;
    - `"turns"`: linear in r_i, as in the paper.

    Args:
        scale: float, at least 1. s.
        original_length: int. L, the number of tokens trained for.
        beta_fast: float. Turns from which on a wave stays. Defaults to `32.0`.
        beta_slow: float. Turns up to which it is s times lower. Defaults to `1.0`.
        ramp: `"index"`, `"exact_index"` or `"turns"`. Defaults to `"index"`.
        attention_factor: float. m. Defaults to `None`, 0.1 ln s + 1. DeepSeek's is
            the ratio `(0.1 a ln s + 1) / (0.1 b ln s + 1)` of its `mscale` a and
            `mscale_all_dim` b.

    Raises:
        ValueError: `` `ramp` must be one of 'index', 'exact_index', 'turns'. ``,
            `` `beta_fast` must be greater than `beta_slow`... ``,
            `` `scale` must be at least 1... `` and
            `` `original_length` must be a positive integer. ``

    References:
        Peng et al., 2023, "YaRN: efficient context window extension of large
        language models", arXiv:2309.00071, sections 3.2 and 3.4.
    """

    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    ramp: str = "index"
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("original_length", self.original_length)
        check_choice("ramp", self.ramp, ["index", "exact_index", "turns"])
        _check_bounds("beta_fast", self.beta_fast, "beta_slow", self.beta_slow)

    @property
    def gain(self) -> float:
        """The factor m."""
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * float(np.log(self.scale)) + 1

    def frequencies(
        self, theta: np.ndarray, max_wavelength: float, length: int | None
    ) -> np.ndarray:
        """See `RotaryScaling.frequencies`."""
        turns = self.original_length * theta / (2 * np.pi)
        if self.ramp == "turns":
            kept = _ramp(turns, self.beta_slow, self.beta_fast)
            return _blend(theta, self.scale, kept)
        # the real index of the wave that makes so many turns
        bounds = np.array([self.beta_fast, self.beta_slow])
        bounds = np.log(turns[0] / bounds) / np.log(max_wavelength) * len(theta)
        if self.ramp == "index":
            bounds = np.array([np.floor(bounds[0]), np.ceil(bounds[1])])
        low, high = np.clip(bounds, 0, 2 * len(theta) - 1)
        if low == high:
            high += 0.001
        return _blend(theta, self.scale, 1 - _ramp(np.arange(len(theta)), low, high))


@keras.saving.register_keras_serializable(package="kseq")
@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    """Llama 3.1: YaRN's ramp in turns, with other bounds and no gain.

        theta'_i = t_i theta_i + (1 - t_i) theta_i / s
        t_i = clip((L theta_i / 2 pi - low) / (high - low), 0, 1)

    Args:
        scale: float, at least 1. s.
        original_length: int. L, the number of tokens trained for.
        low_frequency_factor: float. low, the turns up to which a wave is s times
            lower. Defaults to `1.0`.
        high_frequency_factor: float. high, the turns from which on it stays.
            Defaults to `4.0`.

    Raises:
        ValueError: `` `high_frequency_factor` must be greater than
            `low_frequency_factor`... ``, `` `scale` must be at least 1... `` and
            `` `original_length` must be a positive integer. ``

    References:
        Grattafiori et al., 2024, "The Llama 3 herd of models", arXiv:2407.21783, and
        the code released with Llama 3.1.
    """

    original_length: int
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("original_length", self.original_length)
        _check_bounds(
            "high_frequency_factor",
            self.high_frequency_factor,
            "low_frequency_factor",
            self.low_frequency_factor,
        )

    def frequencies(
        self, theta: np.ndarray, max_wavelength: float, length: int | None
    ) -> np.ndarray:
        """See `RotaryScaling.frequencies`."""
        turns = self.original_length * theta / (2 * np.pi)
        kept = _ramp(turns, self.low_frequency_factor, self.high_frequency_factor)
        return _blend(theta, self.scale, kept)


def rotary_frequencies(
    rotary_dim: int,
    max_wavelength: float = 10_000.0,
    scaling: RotaryScaling | None = None,
    length: int | None = None,
) -> np.ndarray:
    """The frequencies theta of a rotary embedding, `inv_freq` in other code.

        theta_i = max_wavelength ** (-2i / rotary_dim),  i = 0 .. rotary_dim / 2 - 1

    and what `scaling` makes of them.

    Args:
        rotary_dim: int, even. R, how many coordinates are turned.
        max_wavelength: float. The base, called `rope_theta` elsewhere. Defaults to
            `10_000.0`.
        scaling: a `RotaryScaling`: `LinearScaling`, `NTKScaling`,
            `DynamicNTKScaling`, `YaRNScaling` or `Llama3Scaling`. Defaults to `None`.
        length: int. How many tokens there are, for `DynamicNTKScaling`. Defaults to
            `None`, not known.

    Returns:
        A float64 NumPy array `(rotary_dim / 2,)`, in radians a token.

    Raises:
        TypeError: `` `scaling` must be a RotaryScaling... ``
        ValueError: `` A width of pairs must be even... ``,
            `` `max_wavelength` must be greater than 1... `` and
            `` Dynamic NTK scaling needs the number of tokens... ``

    Example:

    >>> scaling = kseq.ops.YaRNScaling(scale=8, original_length=128)
    >>> kseq.ops.rotary_frequencies(16, scaling=scaling).shape
    (8,)
    """
    theta = geometric_frequencies(rotary_dim, max_wavelength)
    check_scaling(scaling)
    if scaling is None:
        return theta
    return scaling.frequencies(theta, float(max_wavelength), length)


def check_scaling(scaling: Any) -> RotaryScaling | None:
    """Returns `scaling` if it is one, or None."""
    if scaling is None or isinstance(scaling, RotaryScaling):
        return scaling
    choices = ", ".join(c.__name__ for c in RotaryScaling.__subclasses__())
    raise TypeError(
        message(
            "`scaling` must be a RotaryScaling or None.",
            fix=f"There are, in kseq.ops, {choices}.",
            scaling=scaling,
        )
    )


def _longer_base(theta: np.ndarray, scale: float) -> np.ndarray:
    """Of the base times scale^{R / (R - 2)}: a factor of 1 to 1 / scale."""
    return theta * scale ** -np.linspace(0, 1, len(theta))


def _ramp(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """0 up to `low`, 1 from `high` on, linear between."""
    return np.clip((x - low) / (high - low), 0, 1)


def _blend(theta: np.ndarray, scale: float, kept: np.ndarray) -> np.ndarray:
    """A share `kept` of each frequency as it is, the rest `scale` times lower."""
    return kept * theta + (1 - kept) * theta / scale


def _check_bounds(high_name: str, high: Any, low_name: str, low: Any) -> None:
    if not high > low > 0:
        raise ValueError(
            message(
                f"`{high_name}` must be greater than `{low_name}`, and both than 0.",
                **{high_name: high, low_name: low},
            )
        )
