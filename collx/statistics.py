"""Order statistics, tests and small pictures for right-skewed, noisy running times.

Pure functions of plain numbers: no clock, no MPI. Times are neither normal nor free of outliers, so
everything here is about medians and ranks, and no sample is ever dropped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEWEST = 5
"""Samples below which no confidence interval is given."""

_EXACT_TEST = 40
"""Samples of both sides up to which the rank test is exact (when there are no ties)."""

_EXACT_TAIL = 1000
"""Samples up to which the binomial tail is summed; beyond, the normal curve is the same."""

_BARS = " ▁▂▃▄▅▆▇█"


def quantile(samples: Iterable[float], q: float) -> float:
    """Value below which the fraction `q` of the samples lies, between samples by interpolation.

    Examples
    --------
    >>> quantile([1, 2, 3, 4], 0.25)
    1.75
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("a quantile needs at least one sample")
    part, low = math.modf(q * (len(ordered) - 1))
    below, above = ordered[int(low)], ordered[min(int(low) + 1, len(ordered) - 1)]
    return float(below + part * (above - below))


def median(samples: Iterable[float]) -> float:
    """Middle value of the samples.

    Examples
    --------
    >>> median([3, 1, 2]), median([4, 1, 2, 3])
    (2.0, 2.5)
    """
    return quantile(samples, 0.5)


def median_interval(
    samples: Sequence[float], confidence: float = 0.95
) -> tuple[float, float] | None:
    """Confidence interval of the median, made of two of the samples themselves.

    The interval runs from the k-th smallest to the k-th largest sample, with the largest k whose
    coverage by the binomial distribution reaches `confidence` (up to 1000 samples exactly, beyond
    by the normal approximation, which then agrees). Nothing is assumed about the distribution, only
    that the samples are independent.

    Returns
    -------
    tuple of float, or None
        None below 5 samples. Where even the smallest and the largest sample do not reach
        `confidence` (5 samples at 95 %: they reach 93.75 %) these two are returned.

    Examples
    --------
    >>> median_interval(range(1, 101))
    (40.0, 61.0)
    >>> median_interval([3, 1, 4, 1, 5]), median_interval([1, 2, 3, 4])
    ((1.0, 5.0), None)
    """
    if len(samples) < FEWEST:
        return None
    ordered, k = sorted(samples), max(1, _interval_rank(len(samples), confidence))
    return float(ordered[k - 1]), float(ordered[-k])


@lru_cache(maxsize=1024)
def _interval_rank(n: int, confidence: float) -> int:
    """Largest k with P(Binomial(n, 1/2) < k) <= (1 - confidence) / 2."""
    if n > _EXACT_TAIL:
        z = NormalDist().inv_cdf(0.5 + confidence / 2)
        return math.floor((n - z * math.sqrt(n)) / 2)
    k, term = 0, 0.5**n
    tail = term
    while tail <= (1 - confidence) / 2:
        k += 1
        term *= (n - k + 1) / k
        tail += term
    return k


def ratio_interval(
    a: Sequence[float],
    b: Sequence[float],
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Bootstrap confidence interval (percentiles) of median(a) / median(b).

    None when either side has fewer than 5 samples. The same arguments give the same interval.

    Examples
    --------
    >>> low, high = ratio_interval([10, 11, 12, 13, 14], [5, 5, 5, 5, 5])
    >>> low, high
    (2.0, 2.8)
    """
    if min(len(a), len(b)) < FEWEST:
        return None
    rng = np.random.default_rng(seed)
    above, below = (_resampled_medians(side, resamples, rng) for side in (a, b))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.sort(above / below)
    cut = int(resamples * (1 - confidence) / 2)
    return float(ratios[cut]), float(ratios[-1 - cut])


def _resampled_medians(
    samples: Sequence[float], resamples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Medians of resamples with replacement, without drawing the resamples.

    A resample picks positions floor(n U) for n uniform U, so its middle elements follow from the
    middle order statistics of n uniform numbers, and those are beta distributed.
    """
    n, ordered = len(samples), np.sort(np.asarray(samples, dtype=np.float64))
    lower = (n + 1) // 2
    first = rng.beta(lower, n + 1 - lower, resamples)
    second = first if n % 2 else first + (1 - first) * rng.beta(1, n - lower, resamples)
    picks = [np.minimum((n * u).astype(np.intp), n - 1) for u in (first, second)]
    medians: NDArray[np.float64] = ordered[picks].mean(axis=0)
    return medians


class RankTest(NamedTuple):
    """Result of `mann_whitney`: p-values by direction, and the size of the effect."""

    u: float
    """Pairs in which the sample of `a` is the larger one; a tie counts one half."""
    two_sided: float
    """p-value against "neither side tends to be larger"."""
    less: float
    """p-value in favour of: `a` tends to be smaller."""
    greater: float
    """p-value in favour of: `a` tends to be larger."""
    effect: float
    """A12: chance that a sample of `a` is larger than one of `b`, in 0 to 1; 0.5 is no effect."""
    exact: bool
    """Whether the p-values are exact or come from the normal approximation."""


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> RankTest:
    """Test by ranks whether the samples of one side tend to be larger than those of the other.

    Exact up to 40 samples without ties, otherwise the normal approximation with midranks, variance
    corrected for ties, and continuity correction.

    Examples
    --------
    >>> result = mann_whitney([1, 2, 3], [4, 5, 6, 7])
    >>> result.u, round(result.less, 4), round(result.two_sided, 4), result.effect
    (0.0, 0.0286, 0.0571, 0.0)
    """
    if not a or not b:
        raise ValueError("the rank test needs samples on both sides")
    m, n, (ranks, ties) = len(a), len(b), _midranks([*a, *b])
    u = sum(ranks[:m]) - m * (m + 1) / 2
    exact = not ties and m + n <= _EXACT_TEST
    less, greater = _exact_tails(m, n, u) if exact else _tails(m, n, u, ties)
    return RankTest(u, min(1.0, 2 * min(less, greater)), less, greater, u / (m * n), exact)


def _midranks(values: Sequence[float]) -> tuple[list[float], list[int]]:
    """Ranks from 1, equal values sharing their mean; and how many values each tie holds."""
    rank_of, below, ties = {}, 0, []
    for value, count in sorted(Counter(values).items()):
        rank_of[value] = below + (count + 1) / 2
        below += count
        ties += [count] * (count > 1)
    return [rank_of[value] for value in values], ties


def _exact_tails(m: int, n: int, u: float) -> tuple[float, float]:
    """P(U <= u) and P(U >= u) when all orders of m + n different samples are equally likely."""
    counts = _orders(m, n)
    total, k = math.comb(m + n, m), round(u)
    return sum(counts[: k + 1]) / total, sum(counts[k:]) / total


@lru_cache(maxsize=256)
def _orders(m: int, n: int) -> list[int]:
    """Count the orders that give each U: coefficients of the Gaussian binomial of m + n over n."""
    counts = [1] + [0] * (m * n)
    for i in range(1, n + 1):
        for u in range(m * n, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, m * n + 1):
            counts[u] += counts[u - i]
    return counts


def _tails(m: int, n: int, u: float, ties: Sequence[int]) -> tuple[float, float]:
    """Both tails of U by the normal approximation."""
    total = m + n
    spread = total + 1 - sum(t**3 - t for t in ties) / (total * (total - 1))
    if spread <= 0:
        return 1.0, 1.0
    deviation, centre = math.sqrt(m * n / 12 * spread), m * n / 2
    less, greater = ((side * (u - centre) + 0.5) / deviation for side in (1, -1))
    return _below(less), _below(greater)


def _below(z: float) -> float:
    """Chance that a standard normal number is below z, precise in the far tail too."""
    return math.erfc(-z / math.sqrt(2)) / 2


def holm(pvalues: Sequence[float]) -> list[float]:
    """p-values adjusted for being a family (Holm's step-down method), in the given order.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, running = [0.0] * len(pvalues), 0.0
    for k, index in enumerate(sorted(range(len(pvalues)), key=pvalues.__getitem__)):
        running = max(running, min(1.0, (len(pvalues) - k) * pvalues[index]))
        adjusted[index] = running
    return adjusted


def outliers(samples: Sequence[float]) -> int:
    """How many samples lie above the third quartile by more than 1.5 interquartile ranges.

    Examples
    --------
    >>> outliers([1, 2, 3, 4, 100])
    1
    """
    if not samples:
        return 0
    first, third = quantile(samples, 0.25), quantile(samples, 0.75)
    return sum(sample > third + 1.5 * (third - first) for sample in samples)


def autocorrelation(samples: Sequence[float]) -> float:
    """Correlation of each sample with the one measured before it (lag 1); 0 if all are equal.

    Near 0 the samples look independent. Far above 0 the machine drifted, and confidence intervals
    over the repetitions of one run are too narrow.

    Examples
    --------
    >>> autocorrelation([1, 2, 3, 4, 5]), autocorrelation([1, 1, 1])
    (0.4, 0.0)
    """
    centre = sum(samples) / max(1, len(samples))
    around = [sample - centre for sample in samples]
    energy = sum(value * value for value in around)
    return sum(x * y for x, y in pairwise(around)) / energy if energy else 0.0


def sparkline(samples: Sequence[float], bins: int = 12) -> str:
    """Histogram in one line, with bins of equal ratio from the smallest to the largest sample.

    A blank is an empty bin, the full block the fullest one. Two hills mean two modes, of which the
    median tells only one. Samples must be positive; others count as the smallest positive one.

    Examples
    --------
    >>> sparkline([1, 1, 1, 1, 8, 8, 1000], bins=4)
    '█▄ ▂'
    """
    positive = [sample for sample in samples if sample > 0]
    if not positive:
        return " " * bins
    least, low = min(positive), math.log(min(positive))
    step = (math.log(max(positive)) - low) / bins or 1.0
    places = (int((math.log(max(sample, least)) - low) / step) for sample in samples)
    counts = Counter(min(place, bins - 1) for place in places)
    fullest = max(counts.values())
    return "".join(_BARS[math.ceil(8 * counts[k] / fullest)] for k in range(bins))
