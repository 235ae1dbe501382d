"""Positions in float64, one position, pair and head at a time.

Written from Vaswani et al. (2017), arXiv:1706.03762; Su et al. (2021),
arXiv:2104.09864; Peng et al. (2023), arXiv:2309.00071; Press et al. (2022),
arXiv:2108.12409; Raffel et al. (2020), arXiv:1910.10683; and, for Llama 3 and the
ramp that YaRN's authors ship, from their code.
"""

import math

import numpy as np


def sinusoid(positions, width, base=1e4):
    """Section 3.5: `(T, D)`."""
    table = np.zeros((len(positions), width))
    for row, p in enumerate(positions):
        for i in range(width // 2):
            angle = int(p) / base ** (2 * i / width)
            table[row, 2 * i] = math.sin(angle)
            table[row, 2 * i + 1] = math.cos(angle)
    return table


def rotated(x, positions, theta, interleaved=False, gain=1.0):
    """Equation 34 on `(B, T, H, K)`, as complex products; positions `(B, T)`."""
    y = np.array(x, "float64")
    half = len(theta)
    for b, t, h in np.ndindex(x.shape[:3]):
        for i in range(half):
            first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
            pair = complex(x[b, t, h, first], x[b, t, h, second])
            angle = int(positions[b, t]) * theta[i]
            pair *= gain * complex(math.cos(angle), math.sin(angle))
            y[b, t, h, first], y[b, t, h, second] = pair.real, pair.imag
    return y


def plain(d, base):
    return [base ** (-2 * i / d) for i in range(d // 2)]


def linear(d, base, s):
    return [theta / s for theta in plain(d, base)]


def ntk(d, base, s):
    """Section 3.1 of YaRN: another base."""
    return plain(d, base * s ** (d / (d - 2)))


def dynamic_ntk(d, base, s, trained, n):
    if n <= trained:
        return plain(d, base)
    return ntk(d, base, s * n / trained - (s - 1))


def yarn_as_shipped(d, base, s, trained, fast=32, slow=1, rounded=True):
    """The ramp over the index i of the authors' code."""

    def index(turns):
        return d * math.log(trained / (2 * math.pi * turns)) / (2 * math.log(base))

    low, high = index(fast), index(slow)
    if rounded:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    if low == high:
        high += 0.001
    scaled = []
    for i, theta in enumerate(plain(d, base)):
        g = min(max((i - low) / (high - low), 0), 1)
        scaled.append(theta * (1 - g) + theta / s * g)
    return scaled


def yarn_as_published(d, base, s, trained, fast=32, slow=1):
    """Section 3.2: the ramp over the turns r(i) = L / lambda_i."""
    scaled = []
    for theta in plain(d, base):
        turns = trained / (2 * math.pi / theta)
        gamma = min(max((turns - slow) / (fast - slow), 0), 1)
        scaled.append((1 - gamma) * theta / s + gamma * theta)
    return scaled


def llama3(d, base, s, trained, low=1, high=4):
    scaled = []
    for theta in plain(d, base):
        wavelength = 2 * math.pi / theta
        if wavelength < trained / high:
            scaled.append(theta)
        elif wavelength > trained / low:
            scaled.append(theta / s)
        else:
            t = (trained / wavelength - low) / (high - low)
            scaled.append((1 - t) * theta / s + t * theta)
    return scaled


def slopes(n):
    """Appendix A of ALiBi, and footnote on heads that are no power of two."""
    if math.log2(n).is_integer():
        return [2 ** (-8 * (h + 1) / n) for h in range(n)]
    power = 2 ** math.floor(math.log2(n))
    return slopes(power) + slopes(2 * power)[0::2][: n - power]


def bucket(relative, num_buckets=32, max_distance=128, bidirectional=True):
    """T5's, with the logarithm's steps found by exact comparisons of integers.

    The bucket near + j begins where (d / near)^(n - near) reaches
    (max_distance / near)^j.
    """
    n = num_buckets // 2 if bidirectional else num_buckets
    offset = n if bidirectional and relative > 0 else 0
    distance = abs(relative) if bidirectional else max(-relative, 0)
    near = n // 2
    if distance < near:
        return offset + distance
    steps = n - near
    j = 0
    while j + 1 < steps and (
        distance**steps * near ** (j + 1) >= max_distance ** (j + 1) * near**steps
    ):
        j += 1
    return offset + near + j


def stretched(table, length, p):
    """Row p of `table` `(L, D)` stretched linearly over `length` positions."""
    place = p * (len(table) - 1) / (length - 1)
    row = min(int(place), len(table) - 2)
    share = place - row
    return (1 - share) * table[row] + share * table[row + 1]
