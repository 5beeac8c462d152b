"""What each collective must give, computed with NumPy from the inputs of all ranks."""

from __future__ import annotations

import numpy as np

SENTINEL = -99


def inputs(name: str, size: int, counts: list[int], seed: int = 0) -> list[np.ndarray]:
    """The input of every rank; `counts` are the elements of the blocks (or parts) of the ranks."""
    total = sum(counts)
    lengths = {
        "gather": counts,
        "gatherv": counts,
        "allgather": counts,
        "allgatherv": counts,
        "alltoall": [total] * size,
        "alltoallv": [sum(row_counts(counts, rank)) for rank in range(size)],
    }.get(name, [total] * size)
    return [
        np.random.default_rng([seed, rank, size]).integers(-1000, 1000, length)
        for rank, length in enumerate(lengths)
    ]


def row_counts(counts: list[int], rank: int) -> list[int]:
    """What rank `rank` sends to each rank in an alltoallv."""
    return [counts[(rank + to) % len(counts)] for to in range(len(counts))]


def column_counts(counts: list[int], rank: int) -> list[int]:
    """What rank `rank` receives from each rank in an alltoallv."""
    return [counts[(source + rank) % len(counts)] for source in range(len(counts))]


def _parts(array: np.ndarray, counts: list[int]) -> list[np.ndarray]:
    return np.split(array, np.cumsum(counts)[:-1])


def expected(
    name: str, data: list[np.ndarray], counts: list[int], rank: int, root: int
) -> np.ndarray | None:
    """The output of a rank, or None where it has none."""
    size = len(data)
    total = sum(data) if name in _COMBINING else None
    match name:
        case "bcast":
            return data[root]
        case "gather" | "gatherv" | "reduce" if rank != root:
            return None
        case "gather" | "gatherv" | "allgather" | "allgatherv":
            return np.concatenate(data)
        case "scatter" | "scatterv":
            return _parts(data[root], counts)[rank]
        case "alltoall":
            return np.concatenate([_parts(each, counts)[rank] for each in data])
        case "alltoallv":
            rows = [_parts(data[q], row_counts(counts, q))[rank] for q in range(size)]
            return np.concatenate(rows)
        case "reduce" | "allreduce":
            return total
        case "reduce_scatter" | "reduce_scatter_block":
            return _parts(total, counts)[rank]
        case "scan":
            return sum(data[: rank + 1])
        case "exscan":
            return sum(data[:rank]) if rank else None
    raise AssertionError(name)


_COMBINING = ("reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan")
