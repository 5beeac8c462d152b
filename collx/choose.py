"""Which algorithm carries out a call.

Strongest first: the argument `algorithm=`; `with collx.using(allreduce="ring")`; the environment
variable `COLLX_ALLREDUCE`; the built-in rules. Settings and environment variables are wishes: they
are passed over for a call whose operator or sizes the algorithm cannot take. A choice depends only
on what every rank knows by MPI's rules, so that it is the same on all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from collx.choice import Choice, parse
from collx.collectives import COLLECTIVES, Call
from collx.registry import Algorithm, Need, Promise, find


@dataclass(frozen=True, eq=False)
class Settings:
    """What `using` sets.

    Attributes
    ----------
    choices : mapping
        Algorithms for some collectives or families.
    check : bool
        Whether ranks compare their arguments before each call.
    reproducible : bool
        Whether only algorithms are chosen whose bits depend on neither layout nor timing.
    event_driven : bool
        Whether actions start as soon as what they wait for is done, and not round by round.
    """

    choices: Mapping[str, Choice]
    check: bool = False
    reproducible: bool = False
    event_driven: bool = False


NO_SETTINGS = Settings({}, os.environ.get("COLLX_CHECK", "0") not in ("", "0"))
settings: ContextVar[Settings] = ContextVar("collx settings", default=NO_SETTINGS)
"""The settings in force in this thread."""


@contextmanager
def using(
    *,
    check: bool | None = None,
    reproducible: bool | None = None,
    event_driven: bool | None = None,
    **choices: str,
) -> Iterator[None]:
    """Choose algorithms, or how calls are made, for a while.

    Parameters
    ----------
    check
        Let ranks compare collective, root, operator, datatype and bytes before each call, and raise
        the same error on all of them if they differ. (Also by the environment: `COLLX_CHECK=1`.)
    reproducible
        Take only algorithms that give the same bits on all ranks and whatever the placement of
        ranks on nodes. No algorithm here depends on timing. An algorithm asked for by name is
        taken as it is.
    event_driven
        Start each message and each local operation as soon as what it waits for is done, whatever
        the round. The results are the same, bit for bit.
    **choices
        For each collective (or family) the algorithm, for example
        `allreduce="ring(segment=64K)"`. All ranks must say the same.

    Raises
    ------
    ValueError
        If there is no such collective, algorithm or parameter.

    Examples
    --------
    >>> with using(allreduce="ring"):
    ...     settings.get().choices["allreduce"]
    Choice(name='ring', items=())
    """
    checked = {name: _checked(name, text) for name, text in choices.items()}
    old = settings.get()
    token = settings.set(
        _same_object(
            {**old.choices, **checked},
            old.check if check is None else check,
            old.reproducible if reproducible is None else reproducible,
            old.event_driven if event_driven is None else event_driven,
        )
    )
    try:
        yield
    finally:
        settings.reset(token)


_SETTINGS: dict[Hashable, Settings] = {}


def _same_object(choices: Mapping[str, Choice], *flags: bool) -> Settings:
    """Equal settings are one object, so that calls prepared under them are found again."""
    return _SETTINGS.setdefault((frozenset(choices.items()), flags), Settings(choices, *flags))


def _checked(collective: str, text: str | Choice) -> Choice:
    find(collective, text)
    return parse(text)


class Rule(NamedTuple):
    """`choice` is taken if `test` holds; the first rule of a family that fits decides."""

    test: Callable[[Facts], bool]
    choice: str
    reason: str


class Facts(NamedTuple):
    """What every rank knows of a call.

    Attributes
    ----------
    size : int
        Ranks.
    nbytes : int
        Bytes of the whole vector, or of the blocks of all ranks together; -1 if a rank cannot
        know them.
    cells : int
        The same in cells.
    commutative : bool
        Whether operands may be exchanged.
    equal : bool
        Whether all blocks have the same size, as far as all ranks know.
    """

    size: int
    nbytes: int
    cells: int
    commutative: bool
    equal: bool


def facts_of(call: Call) -> Facts:
    """The facts of a call."""
    sized = call.collective.removeprefix("inter_") in ("gather", "scatter", "allgather", "alltoall")
    sized = sized or call.collective == "reduce_scatter"
    if sized:
        cells = sum(call.sizes) if call.sizes is not None else -1
        equal = call.sizes is not None and len(set(call.sizes)) <= 1
    elif COLLECTIVES[call.collective].sparse:
        cells, equal = -1, False
    else:
        cells, equal = max(len(call.input), len(call.output)), True
    return Facts(call.size, cells * call.cell_bytes, cells, call.commutative, equal)


def _always(facts: Facts) -> bool:
    return True


def _up_to(nbytes: int) -> Callable[[Facts], bool]:
    return lambda facts: 0 <= facts.nbytes <= nbytes


def _ordered(facts: Facts) -> bool:
    return not facts.commutative


def _two_ranks(facts: Facts) -> bool:
    return facts.size == 2


def _blocks_up_to(nbytes: int) -> Callable[[Facts], bool]:
    """Whether the bytes for one rank are few: then rounds cost more than bytes."""
    return lambda facts: 0 <= facts.nbytes <= nbytes * facts.size


def _up_to_ranks(size: int) -> Callable[[Facts], bool]:
    return lambda facts: facts.size <= size


def _few_cells(facts: Facts) -> bool:
    return facts.cells < facts.size


def _sizes_unknown(facts: Facts) -> bool:
    return facts.nbytes < 0


def _small_blocks(facts: Facts) -> bool:
    return facts.equal and facts.size >= 8 and facts.nbytes <= 256 * facts.size


RULES: dict[str, list[Rule]] = {
    "barrier": [Rule(_always, "dissemination", "fewest rounds")],
    "bcast": [
        Rule(_up_to(12288), "binomial", "short: fewest rounds"),
        Rule(_two_ranks, "binomial", "one message"),
        Rule(_up_to(524288), "scatter_allgather", "medium: each byte twice, few rounds"),
        Rule(_always, "chain(chains=1, segment=128K)", "long: each byte once"),
    ],
    "reduce": [
        Rule(_two_ranks, "binomial", "one message"),
        Rule(_ordered, "binomial", "keeps the order of ranks"),
        Rule(_few_cells, "binomial", "too few elements to split"),
        Rule(_up_to(2048), "binomial", "short: fewest rounds"),
        Rule(_always, "rabenseifner", "long: the work is shared"),
    ],
    "allreduce": [
        Rule(_two_ranks, "recursive_doubling", "one exchange"),
        Rule(_ordered, "recursive_doubling", "keeps the order of ranks"),
        Rule(_few_cells, "recursive_doubling", "too few elements to split"),
        Rule(_up_to(2048), "recursive_doubling", "short: fewest rounds"),
        Rule(_blocks_up_to(65536), "rabenseifner", "medium: few rounds, each byte twice"),
        Rule(_always, "ring", "long: each byte twice, neighbours only"),
    ],
    "allgather": [
        Rule(_blocks_up_to(32768), "bruck", "short: fewest rounds"),
        Rule(_always, "ring", "long: neighbours only"),
    ],
    "gather": [
        Rule(_sizes_unknown, "linear", "sizes known at the root only"),
        Rule(_up_to(65536), "binomial", "short: fewest rounds"),
        Rule(_always, "linear", "long: each byte once"),
    ],
    "scatter": [
        Rule(_sizes_unknown, "linear", "sizes known at the root only"),
        Rule(_up_to(65536), "binomial", "short: fewest rounds"),
        Rule(_always, "linear", "long: each byte once"),
    ],
    "alltoall": [
        Rule(_small_blocks, "bruck", "short: fewest rounds"),
        Rule(_up_to_ranks(33), "linear", "each byte once"),
        Rule(_always, "linear(window=32)", "each byte once, a bounded number of requests"),
    ],
    "reduce_scatter": [
        Rule(_ordered, "butterfly", "keeps the order of ranks"),
        Rule(_blocks_up_to(65536), "circulant", "fewest rounds, each byte once"),
        Rule(_always, "ring", "long: neighbours only"),
    ],
    "scan": [Rule(_always, "recursive_doubling", "fewest rounds")],
    "exscan": [Rule(_always, "window", "fewest rounds")],
    "neighbor_allgather": [Rule(_always, "linear", "each block once, to neighbours only")],
    "neighbor_alltoall": [Rule(_always, "linear", "each block once, to neighbours only")],
    "inter_barrier": [Rule(_always, "merged", "fewest rounds")],
    "inter_bcast": [
        Rule(_up_to(12288), "joined", "short: fewest rounds"),
        Rule(_two_ranks, "linear", "one message"),
        Rule(_always, "scatter_allgather", "long: each byte twice"),
    ],
    "inter_gather": [
        Rule(_sizes_unknown, "linear", "sizes known at the root only"),
        Rule(_up_to(65536), "joined", "short: fewest rounds"),
        Rule(_always, "linear", "long: each byte once"),
    ],
    "inter_scatter": [
        Rule(_sizes_unknown, "linear", "sizes known at the root only"),
        Rule(_up_to(65536), "joined", "short: fewest rounds"),
        Rule(_always, "linear", "long: each byte once"),
    ],
    "inter_allgather": [
        Rule(_two_ranks, "linear", "one exchange"),
        Rule(_up_to(81920), "remote_send_local_allgather(allgather=bruck)", "short: fewest rounds"),
        Rule(_always, "remote_send_local_allgather", "long: each byte twice, neighbours only"),
    ],
    "inter_alltoall": [
        Rule(_up_to_ranks(33), "linear", "each byte once"),
        Rule(_always, "linear(window=32)", "each byte once, a bounded number of requests"),
    ],
    "inter_reduce": [
        Rule(_ordered, "local_reduce_remote_send", "keeps the order of ranks"),
        Rule(_few_cells, "local_reduce_remote_send", "too few elements to split"),
        Rule(_up_to(2048), "local_reduce_remote_send", "short: few rounds"),
        Rule(
            _always,
            "reduce_scatter_gather(reduce_scatter=circulant)",
            "long: the work is shared",
        ),
    ],
    "inter_allreduce": [
        Rule(_few_cells, "local_allreduce_remote_send", "too few elements to split"),
        Rule(_up_to(2048), "local_allreduce_remote_send", "short: fewest rounds"),
        Rule(_ordered, "reduce_scatter_exchange_allgather", "keeps the order of ranks"),
        Rule(
            _always,
            "reduce_scatter_exchange_allgather(reduce_scatter=circulant)",
            "long: each rank works on a part",
        ),
    ],
    "inter_reduce_scatter": [
        Rule(_few_cells, "remote_reduce_local_scatter", "too few elements to split"),
        Rule(_up_to(2048), "remote_reduce_local_scatter", "short: few rounds"),
        Rule(_ordered, "reduce_scatter_exchange", "keeps the order of ranks"),
        Rule(
            _always,
            "reduce_scatter_exchange(reduce_scatter=circulant)",
            "long: each rank works on a part",
        ),
    ],
}
"""The built-in rules of each family, after the thresholds of the MPI libraries."""


class Decision(NamedTuple):
    """A choice and why it was made."""

    choice: Choice
    reason: str


def decide(collective: str, call: Call, algorithm: str | Choice | None) -> Decision:
    """Choose the algorithm for a call.

    Raises
    ------
    ValueError
        If the algorithm that was asked for does not exist.
    """
    if algorithm is not None:
        return Decision(parse(algorithm), "the argument algorithm=")
    family = COLLECTIVES[collective].family
    passed_over = ""
    for source, choice in (*_wishes(collective, family), *_rules(family, call)):
        marked, _ = find(collective, choice)
        if marked.unmet(call):
            continue
        if not settings.get().reproducible or _same_everywhere(marked):
            return Decision(choice, source + passed_over)
        passed_over = passed_over or f"; reproducible=True passes over {choice}"
    raise AssertionError(f"no rule for {collective}")  # the last rule of a family fits every call


def _rules(family: str, call: Call) -> Iterator[tuple[str, Choice]]:
    """What the built-in rules say, the first that fits first."""
    facts = facts_of(call)
    for rule in RULES[family]:
        if rule.test(facts):
            yield f"the built-in rule: {rule.reason}", parse(rule.choice)


def _same_everywhere(marked: Algorithm) -> bool:
    """Whether bits are the same on all ranks, and on whatever nodes the ranks are."""
    if not COLLECTIVES[marked.family].combines:
        return True
    same_bits = Promise.SAME_BITS in marked.promises or not marked.family.endswith("allreduce")
    return same_bits and Need.NODE_MAP not in marked.needs


def _wishes(collective: str, family: str) -> Iterator[tuple[str, Choice]]:
    """What settings and environment ask for, strongest first; taken where its needs are met."""
    for name in dict.fromkeys((collective, family)):
        if chosen := settings.get().choices.get(name):
            yield f"collx.using({name}=...)", chosen
    for name in dict.fromkeys((collective, family)):
        if text := os.environ.get(f"COLLX_{name.upper()}"):
            yield f"the environment variable COLLX_{name.upper()}", _checked(name, text)
