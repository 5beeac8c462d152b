"""The mark, the needs, and the messages when something is not there or cannot be done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from collx.choice import Choice, parse
from collx.collectives import COLLECTIVES, FAMILIES, Call, Shape, call_of
from collx.interleave import Fault
from collx.registry import (
    CHECKS,
    Algorithm,
    Need,
    NeedsError,
    Promise,
    algorithm,
    algorithms,
    everything,
    find,
    flags,
    parse_value,
    run,
    unregister,
)
from collx.schedule import EMPTY, INPUT, OUTPUT, SCRATCH, TOKEN, Copy, Region, Round, Send, Steps
from collx.shapes import cases, shapes
from collx.verify import verify


@pytest.fixture
def choosy() -> Iterator[Algorithm]:
    @algorithm(
        family="reduce",
        needs=Need.COMMUTATIVE | Need.POWER_OF_TWO,
        promises=Promise.SAME_BITS,
        covers="One library; another",
        also={"wide": {"radix": 8}},
        radix=(2, 4, 8),
        inner=("linear", "knomial(radix=4)"),
    )
    def choosy(call: Call, radix: int = 2, inner: str = "linear") -> Steps:
        """Do as little as possible.

        And explain it here.

        Cost: rounds = 1,
            sent = n
        Reference: Nobody 1999;
            Somebody 2000.
        """
        yield Send(TOKEN, to=radix)

    yield choosy
    unregister(choosy)


def test_mark_keeps_what_it_was_told(choosy: Algorithm) -> None:
    assert (choosy.name, choosy.family) == ("choosy", "reduce")
    assert choosy.defaults == {"radix": 2, "inner": "linear"}
    assert choosy.summary == "Do as little as possible."
    assert choosy.entry("Cost") == "rounds = 1, sent = n"
    assert choosy.entry("Reference") == "Nobody 1999; Somebody 2000."
    assert choosy.entry("Picture") == ""


def test_choices_vary_one_parameter_at_a_time(choosy: Algorithm) -> None:
    assert list(map(str, choosy.choices())) == [
        "choosy",
        "choosy(radix=4)",
        "choosy(radix=8)",
        "choosy(inner=knomial(radix=4))",
    ]


def test_call_gives_the_schedule(choosy: Algorithm) -> None:
    call = Call("reduce", 0, 4)

    assert list(choosy(call, radix=3)) == [Round((Send(TOKEN, to=3),))]
    assert list(run(call, "choosy(radix=1)")) == [Round((Send(TOKEN, to=1),))]
    sub = Call("bcast", 5, 8).sub("reduce", ranks=[3, 5, 6, 7])
    assert list(run(sub, "choosy")) == [Round((Send(TOKEN, to=6),))]


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("choosy", {}),
        ("choosy(radix=4)", {"radix": 4}),
        ("wide", {"radix": 8}),
        ("wide(inner=knomial)", {"radix": 8, "inner": "knomial"}),
        ("wide(radix=4)", {"radix": 4}),
    ],
)
def test_found_by_name(choosy: Algorithm, text: str, parameters: dict[str, Any]) -> None:
    assert find("reduce", text) == (choosy, parameters)
    assert find("REDUCE", parse(text)) == (choosy, parameters)


@pytest.mark.parametrize(
    ("collective", "text", "complaint"),
    [
        ("reduce", "telepathy", "no reduce algorithm 'telepathy'; there are: "),
        ("reduce", "choosy(speed=9)", "reduce algorithm 'choosy' has no parameter 'speed'; it has:"
            " radix, inner"),
        ("barrier", "two_ranks(a=1)", "has no parameter 'a'; it has: none"),
        ("gossip", "ring", "no collective 'gossip'; there are: barrier, bcast"),
        ("reduce", "choosy radix", "cannot read 'choosy radix': write it as name or name("),
    ],
)  # fmt: skip
def test_what_is_not_there_is_explained(
    choosy: Algorithm, collective: str, text: str, complaint: str
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the text is compared below
        find(collective, text)

    assert complaint in str(error.value)


def test_list_of_names_has_the_further_ones(choosy: Algorithm) -> None:
    with pytest.raises(ValueError, match=r"choosy, .*, wide"):
        find("reduce", "telepathy")


def test_unmet_needs_are_named(choosy: Algorithm) -> None:
    call = Call("reduce", 0, 3, commutative=False)

    assert choosy.unmet(call) == [Need.COMMUTATIVE, Need.POWER_OF_TWO]
    with pytest.raises(NeedsError) as error:
        choosy(call)
    assert str(error.value) == (
        "reduce algorithm 'choosy' needs a commutative operator"
        " and a power of two as the number of ranks"
    )


def test_unknown_parameter_is_named(choosy: Algorithm) -> None:
    with pytest.raises(TypeError, match="no parameter 'speed'; it has: radix, inner"):
        choosy(Call("reduce", 0, 2), speed=3)


# For each need a call that meets it and one that does not.
EIGHT = Region((INPUT, 0, 8))
MEETING: dict[Need, tuple[Call, Call | None]] = {
    Need.COMMUTATIVE: (Call("scan", 0, 3), Call("scan", 0, 3, commutative=False)),
    Need.POWER_OF_TWO: (Call("scan", 0, 8), Call("scan", 0, 6)),
    Need.EVEN_SIZE: (Call("scan", 0, 6), Call("scan", 0, 3)),
    Need.TWO_RANKS: (Call("scan", 0, 2), Call("scan", 0, 4)),
    Need.EQUAL_BLOCKS: (Call("scan", 0, 2, sizes=[3, 3]), Call("scan", 0, 2, sizes=[3, 2])),
    Need.KNOWN_SIZES: (Call("gather", 0, 2, sizes=[1, 2]), Call("gather", 0, 2)),
    Need.CELL_PER_RANK: (Call("scan", 0, 8, input=EIGHT), Call("scan", 0, 9, input=EIGHT)),
    Need.NODE_MAP: (Call("scan", 0, 2), None),
    Need.SEPARATE_BUFFERS: (Call("scan", 0, 2), None),
    Need.WHOLE_GRAPH: (Call("neighbor_allgather", 0, 2), None),
}


@pytest.mark.parametrize("need", CHECKS, ids=lambda need: str(need.name))
def test_need_is_checked(need: Need) -> None:
    meets, (good, bad) = CHECKS[need][0], MEETING[need]

    assert meets(good)
    assert bad is None or not meets(bad)


def test_every_need_has_a_check_and_a_wording() -> None:
    assert list(flags(~Need.NOTHING)) == list(CHECKS)
    assert all(wording for _, wording in CHECKS.values())


def test_separate_buffers_are_made() -> None:
    @algorithm(family="allreduce", needs=Need.SEPARATE_BUFFERS)
    def separated(call: Call) -> Steps:
        """See two buffers even if there is one."""
        assert not call.in_place
        yield Copy(call.output, call.input)

    unregister(separated)
    cells = Region((OUTPUT, 0, 3))
    saved = Region((SCRATCH, 0, 3))

    in_place = list(separated(Call("allreduce", 0, 2, input=cells, output=cells)))
    apart = list(separated(Call("allreduce", 0, 2, input=Region((INPUT, 0, 3)), output=cells)))

    assert in_place == [Round((Copy(saved, cells),)), Round((Copy(cells, saved),))]
    assert apart == [Round((Copy(cells, Region((INPUT, 0, 3))),))]


@pytest.mark.parametrize("family", [row for row in FAMILIES if not COLLECTIVES[row].sparse])
def test_one_rank_needs_no_algorithm(family: str) -> None:
    @algorithm(family=family)
    def absent(call: Call) -> Steps:
        """Must not be called."""
        raise AssertionError
        yield ()

    unregister(absent)
    for shape in shapes(absent, 1):
        verify(absent, shape)


def test_module_that_is_no_family_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no collective 'test_registry': write @algorithm\(fam"):

        @algorithm()
        def lost(call: Call) -> Steps:
            """Belong nowhere."""
            yield ()


def test_lists_are_by_family() -> None:
    assert algorithms("gatherv") == algorithms("gather") == algorithms("Gather")
    assert {a.family for a in everything()} <= set(FAMILIES)
    for row in COLLECTIVES.values():
        assert row.family in FAMILIES


def test_value_with_parentheses_is_a_choice() -> None:
    assert parse_value("ring(segment=1K)") == Choice("ring", (("segment", 1024),))
    assert parse_value("ring") == "ring"
    assert parse_value((2, 3)) == (2, 3)


# The shapes that the verifier tries


def reducing(needs: Need = Need.NOTHING) -> Algorithm:
    def nothing(call: Call, radix: int = 2, segment: int = 0) -> Steps:
        yield ()

    values = {"radix": (2, 3, 4), "segment": (1024,)}
    return Algorithm("nothing", "reduce", nothing, needs, Promise.NOTHING, "", values, {})


@pytest.mark.parametrize("size", [2, 3, 5, 8, 9])
def test_all_roots_and_counts_are_tried(size: int) -> None:
    tried = list(shapes(reducing(), size))

    assert {shape.root for shape in tried} == set(range(size))
    assert {0, 1, size - 1, size, size + 1} <= {shape.total for shape in tried}
    assert {(s.root, s.in_place) for s in tried} == {
        (root, in_place) for root in range(size) for in_place in (False, True)
    }
    assert {(s.in_place, s.commutative) for s in tried} == {
        (a, b) for a in (False, True) for b in (False, True)
    }


@pytest.mark.parametrize("size", [11, 17, 33, 64])
def test_each_fact_is_tried_on_many_ranks(size: int) -> None:
    tried = list(shapes(reducing(Need.NODE_MAP), size, thorough=False))

    assert {0, size - 1} <= {shape.root for shape in tried}
    assert {shape.in_place for shape in tried} == {False, True}
    assert {shape.commutative for shape in tried} == {False, True}
    assert len({shape.nodes for shape in tried}) == 5
    assert {shape.total < size for shape in tried} == {False, True}


@pytest.mark.parametrize("size", [1, 2, 4, 5, 9, 17, 64])
def test_each_parameter_is_tried_on_each_size(size: int) -> None:
    tried = list(cases(reducing(), size, thorough=size <= 9))

    parameters = [parameters for _, parameters in tried]
    assert all(p in parameters for p in ({}, {"radix": 3}, {"radix": 4}))
    assert all(p in parameters for p in ({"segment": 8}, {"segment": 24}))
    assert {shape for shape, p in tried if not p} == set(
        shapes(reducing(), size, thorough=size <= 9)
    )


def test_needs_limit_the_shapes() -> None:
    assert not list(shapes(reducing(Need.EVEN_SIZE), 7))
    assert all(shape.commutative for shape in shapes(reducing(Need.COMMUTATIVE), 6))
    assert all(shape.total >= 6 for shape in shapes(reducing(Need.CELL_PER_RANK), 6))


def test_blocks_are_ragged_with_zeros() -> None:
    def nothing(call: Call) -> Steps:
        yield ()

    ragged = Algorithm("nothing", "gather", nothing, Need.NOTHING, Promise.NOTHING, "", {}, {})
    for size in (3, 9, 17, 64):
        tried = list(shapes(ragged, size, thorough=False))
        assert any(0 in shape.sizes and max(shape.sizes) > 1 for shape in tried), size
        assert {shape.sizes_known for shape in tried} == {True, False}


def test_shape_needs_a_size_for_each_rank() -> None:
    with pytest.raises(ValueError, match="3 ranks need 3 block sizes"):
        Shape("gather", 3, (1, 2))


def test_calls_of_gatherv_do_not_know_all_sizes() -> None:
    call = call_of(Shape("gather", 3, (1, 2, 0), root=1, sizes_known=False), 0)

    assert call.sizes is None
    assert call.output == EMPTY
    assert len(call.input) == 1


def test_verifier_names_parameters() -> None:
    with pytest.raises(Fault, match=r"^reduce\.nothing\(radix=3\), P=2 sizes=2\*1 root=0: rank 0"):
        verify(reducing(), Shape("reduce", 2, (1, 1)), radix=3)
