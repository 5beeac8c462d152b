"""Order statistics and rank tests against enumeration, simulation and values worked out by hand."""

from __future__ import annotations

import math
import time
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collx import statistics

numbers = st.floats(-1e6, 1e6)
times = st.floats(1e-9, 1e3)
pvalues = st.lists(st.floats(0, 1), max_size=12)


@given(st.lists(numbers, min_size=1), st.floats(0, 1))
def test_quantile_is_numpys(samples: list[float], q: float) -> None:
    expected = float(np.quantile(samples, q))

    assert statistics.quantile(samples, q) == pytest.approx(expected, abs=1e-6)


def test_quantile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        statistics.median([])


# Smallest rank of the interval, worked out from sums of binomial coefficients.
@pytest.mark.parametrize(
    ("n", "confidence", "rank"),
    [
        *[(5, 0.95, 1), (6, 0.95, 1), (8, 0.95, 1), (9, 0.95, 2), (10, 0.95, 2), (12, 0.95, 3)],
        *[(20, 0.95, 6), (30, 0.95, 10), (100, 0.95, 40), (7, 0.99, 1), (20, 0.99, 4)],
    ],
)
def test_median_interval_ranks(n: int, confidence: float, rank: int) -> None:
    interval = statistics.median_interval(range(1, n + 1), confidence)

    assert interval == (rank, n + 1 - rank)


@pytest.mark.parametrize("n", [6, 7, 20, 51, 200, 999])
def test_median_interval_is_the_shortest_that_covers(n: int) -> None:
    interval = statistics.median_interval(range(1, n + 1))
    assert interval is not None
    k = round(interval[0])
    misses = [2 * sum(math.comb(n, i) for i in range(rank)) / 2**n for rank in (k, k + 1)]

    assert misses[0] <= 0.05 < misses[1]


def test_median_interval_of_many_samples_joins_the_exact_one() -> None:
    exact, normal = (statistics._interval_rank(n, 0.95) for n in (1000, 1001))

    assert normal - 1 <= exact <= normal + 1


def test_no_interval_below_five_samples() -> None:
    four, five = [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0]

    assert statistics.median_interval(four) is None
    assert statistics.median_interval(five) == (1.0, 5.0)
    assert statistics.ratio_interval(four, five) is None
    assert statistics.ratio_interval(five, four) is None


@pytest.mark.parametrize("n", [11, 40])
def test_intervals_cover_the_truth_about_as_often_as_they_say(n: int) -> None:
    rng, runs = np.random.default_rng(1), 400
    covered: Counter[str] = Counter()
    for seed in range(runs):
        a, b = (rng.lognormal(mean, 0.5, n).tolist() for mean in (1.0, 0.0))
        low, high = statistics.median_interval(a) or (math.nan, math.nan)
        covered["median"] += low <= math.e <= high
        low, high = statistics.ratio_interval(a, b, seed=seed) or (math.nan, math.nan)
        covered["ratio"] += low <= math.e <= high

    assert covered["median"] / runs >= 0.94
    assert 0.90 <= covered["ratio"] / runs <= 0.995


@pytest.mark.parametrize("n", [5, 6, 11, 12])
def test_ratio_interval_is_that_of_drawn_resamples(n: int) -> None:
    rng = np.random.default_rng(2)
    samples = rng.lognormal(0, 1, n)
    medians = statistics._resampled_medians(samples.tolist(), 40_000, rng)
    drawn = np.median(rng.choice(samples, (40_000, n)), axis=1)
    values = np.unique(np.concatenate([medians, drawn]).round(9))
    gaps = [abs((medians <= v + 1e-8).mean() - (drawn <= v + 1e-8).mean()) for v in values]

    assert max(gaps) < 0.02


def test_ratio_interval_repeats_and_turns_over() -> None:
    a, b = [float(3 + k % 7) for k in range(40)], [float(2 + k % 5) for k in range(30)]
    first, again = statistics.ratio_interval(a, b), statistics.ratio_interval(a, b)
    turned = statistics.ratio_interval(b, a)

    assert first == again
    assert first is not None
    assert turned is not None
    assert turned == pytest.approx((1 / first[1], 1 / first[0]), rel=0.15)


def test_ratio_interval_is_fast() -> None:
    samples = [1.0 + k % 17 for k in range(100)]
    started = time.process_time()
    statistics.ratio_interval(samples, samples)

    assert time.process_time() - started < 0.5


def test_ratio_interval_over_zero_times_does_not_warn() -> None:
    assert statistics.ratio_interval([1.0] * 5, [0.0] * 5) == (math.inf, math.inf)


def tails_by_enumeration(a: list[float], b: list[float]) -> tuple[float, float]:
    """P(U <= u) and P(U >= u) by taking every possible side out of the pooled samples."""
    pooled = {*a, *b}
    sides = [set(side) for side in combinations(pooled, len(a))]
    values = [sum(x > y for x in side for y in pooled - side) for side in sides]
    u = sum(x > y for x in a for y in b)
    less, greater = sum(v <= u for v in values), sum(v >= u for v in values)
    return less / len(values), greater / len(values)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=9, unique=True), st.data())
def test_mann_whitney_is_exact_without_ties(values: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))
    a, b = [float(v) for v in values[:cut]], [float(v) for v in values[cut:]]
    less, greater = tails_by_enumeration(a, b)
    result = statistics.mann_whitney(a, b)

    assert result.exact
    assert (result.less, result.greater) == pytest.approx((less, greater))
    assert result.two_sided == pytest.approx(min(1, 2 * min(less, greater)))


def test_mann_whitney_with_ties_by_hand() -> None:
    # Midranks 1.5 1.5 4 4 | 4 6 7 8, so U = 11 - 10 = 1. Ties of 2 and 3: 6 + 24 = 30, and the
    # variance is 4 * 4 / 12 * (9 - 30 / 56) = 11.2857; z = (8 - 1 - 0.5) / 3.35942 = 1.93486.
    result = statistics.mann_whitney([1, 1, 2, 2], [2, 3, 4, 5])

    assert not result.exact
    assert result.u == 1
    assert result.effect == 1 / 16
    assert result.two_sided == pytest.approx(0.0530, abs=2e-4)
    assert result.less == pytest.approx(0.0265, abs=1e-4)
    assert result.greater == pytest.approx(0.9872, abs=1e-3)


def test_mann_whitney_approximation_meets_the_exact_test() -> None:
    u, m, n = 60.0, 15, 15
    exact, approximate = statistics._exact_tails(m, n, u), statistics._tails(m, n, u, [])

    assert approximate == pytest.approx(exact, abs=0.002)


def test_mann_whitney_of_equal_samples_says_nothing() -> None:
    result = statistics.mann_whitney([2.0] * 6, [2.0] * 8)

    assert (result.two_sided, result.less, result.greater, result.effect) == (1, 1, 1, 0.5)


def test_mann_whitney_needs_both_sides() -> None:
    with pytest.raises(ValueError, match="both sides"):
        statistics.mann_whitney([], [1.0])


@given(st.lists(times, min_size=1, max_size=60), st.lists(times, min_size=1, max_size=60))
def test_mann_whitney_is_symmetric(a: list[float], b: list[float]) -> None:
    forth, back = statistics.mann_whitney(a, b), statistics.mann_whitney(b, a)

    assert forth.two_sided == pytest.approx(back.two_sided)
    assert forth.less == pytest.approx(back.greater)
    assert forth.effect == pytest.approx(1 - back.effect)
    assert 0 <= forth.two_sided <= 1


def test_number_of_orders() -> None:
    assert statistics._orders(2, 2) == [1, 1, 2, 1, 1]
    assert sum(statistics._orders(9, 7)) == math.comb(16, 7)


def test_holm_by_hand() -> None:
    adjusted = statistics.holm([0.01, 0.005, 0.03, 0.5])

    assert adjusted == pytest.approx([0.03, 0.02, 0.06, 0.5])


@given(pvalues)
def test_holm_keeps_order_and_only_raises(values: list[float]) -> None:
    adjusted = statistics.holm(values)
    by_p = sorted(range(len(values)), key=values.__getitem__)

    assert all(p <= q <= 1 for p, q in zip(values, adjusted, strict=True))
    assert [adjusted[i] for i in by_p] == sorted(adjusted)
    assert all(q <= min(1, len(values) * p) for p, q in zip(values, adjusted, strict=True))


def test_outliers_count_only_the_slow_side() -> None:
    # Quartiles 11 and 13, also with one more sample: the fence is 13 + 1.5 * 2 = 16.
    samples = [10, 11, 11, 11, 12, 12, 13, 13, 13, 16]

    assert statistics.outliers(samples) == 0
    assert statistics.outliers([*samples, 16.1]) == 1
    assert statistics.outliers([*samples, 0.001]) == 0
    assert statistics.outliers([]) == 0


def test_autocorrelation() -> None:
    rng = np.random.default_rng(3)
    white = rng.normal(size=2000).tolist()

    assert abs(statistics.autocorrelation(white)) < 0.06
    assert statistics.autocorrelation([1, -1] * 50) == pytest.approx(-0.99)
    assert statistics.autocorrelation([]) == 0


def test_sparkline_shows_two_modes() -> None:
    assert statistics.sparkline([1.0] * 8 + [1000.0] * 8) == "█          █"
    assert statistics.sparkline([5.0] * 3) == "█           "
    assert statistics.sparkline([0.0, 1.0, 10.0], bins=2) == "█▄"
    assert statistics.sparkline([], bins=3) == "   "


@given(st.lists(times, min_size=1), st.integers(1, 40))
def test_sparkline_has_its_width_and_a_full_bar(samples: list[float], bins: int) -> None:
    line = statistics.sparkline(samples, bins)

    assert len(line) == bins
    assert "█" in line
