"""Regions and blocks against plain lists of cells; rounds, merging and renumbering."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collx.collectives import Call
from collx.schedule import (
    EMPTY,
    INPUT,
    OUTPUT,
    SCRATCH,
    TOKEN,
    Blocks,
    Combine,
    Copy,
    Piece,
    Recv,
    RecvInts,
    Region,
    Round,
    Schedule,
    Send,
    SendInts,
    Steps,
    as_round,
    is_message,
    merge,
    renumber,
    rounds,
)

Cell = tuple[int, int]


def cells(region: Region) -> list[Cell]:
    return [(buffer, at) for buffer, start, stop in region.pieces for at in range(start, stop)]


@st.composite
def pieces(draw: st.DrawFn) -> Piece:
    start = draw(st.integers(0, 12))
    return draw(st.integers(0, 3)), start, start + draw(st.integers(0, 6))


regions = st.lists(pieces(), max_size=5).map(lambda some: Region(*some))


@st.composite
def blocks_of_all_kinds(draw: st.DrawFn) -> Blocks:
    region = draw(regions)
    if draw(st.booleans()):
        return region.split(draw(st.integers(1, 7)))
    cuts = sorted(draw(st.lists(st.integers(0, len(region)), max_size=5)))
    ends = [0, *cuts, len(region)]
    return region.blocks(b - a for a, b in pairwise(ends))


@given(regions)
def test_region_is_the_list_of_its_cells(region: Region) -> None:
    assert len(region) == len(cells(region))
    assert bool(region) == bool(cells(region))


@given(st.lists(pieces(), max_size=5))
def test_pieces_are_joined_and_never_empty(some: list[Piece]) -> None:
    region = Region(*some)

    assert cells(region) == [(b, at) for b, start, stop in some for at in range(start, stop)]
    assert all(start < stop for _, start, stop in region.pieces)
    for (a, _, end), (b, start, _) in zip(region.pieces, region.pieces[1:], strict=False):
        assert (a, end) != (b, start)


@given(regions, regions)
def test_sum_is_one_after_the_other(a: Region, b: Region) -> None:
    assert cells(a + b) == cells(a) + cells(b)


@given(regions, regions)
def test_equal_regions_have_equal_cells(a: Region, b: Region) -> None:
    assert (a == b) == (cells(a) == cells(b))
    assert a != b or hash(a) == hash(b)
    assert a != cells(a)


@given(regions, st.integers(-3, 40), st.integers(-3, 40))
def test_part_is_a_slice(region: Region, start: int, stop: int) -> None:
    assert cells(region.part(start, stop)) == cells(region)[max(start, 0) : max(stop, 0)]


@given(regions, st.integers(1, 9))
def test_split_is_even_with_the_larger_parts_first(region: Region, parts: int) -> None:
    blocks = region.split(parts)

    sizes = [len(block) for block in blocks]
    assert len(blocks) == parts
    assert [cell for block in blocks for cell in cells(block)] == cells(region)
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


@given(regions, st.data())
def test_blocks_have_the_sizes_asked_for(region: Region, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(region)), max_size=4)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, len(region)], strict=True)]

    blocks = region.blocks(sizes)

    assert [len(block) for block in blocks] == sizes
    assert blocks.whole == region


@given(regions, st.integers(0, 9))
def test_segments_are_consecutive_and_bounded(region: Region, most: int) -> None:
    segments = region.segments(most)

    assert [cell for segment in segments for cell in cells(segment)] == cells(region)
    assert all(segments)
    assert all(len(segment) == most for segment in segments[:-1])
    assert most or len(segments) == bool(region)


@given(regions, regions)
def test_overlap_is_a_common_cell(a: Region, b: Region) -> None:
    assert a.overlaps(b) == bool(set(cells(a)) & set(cells(b)))


@given(blocks_of_all_kinds(), st.integers(-9, 9), st.integers(0, 9))
def test_ranges_of_blocks_wrap_around(blocks: Blocks, start: int, count: int) -> None:
    count = min(count, len(blocks))
    expected = [
        c for i in range(start, start + count) for c in cells(list(blocks)[i % len(blocks)])
    ]

    assert cells(blocks[start : start + count]) == expected
    assert cells(blocks.select(range(start, start + count))) == expected
    assert blocks[start] == list(blocks)[start % len(blocks)]


@given(blocks_of_all_kinds())
def test_whole_is_all_blocks(blocks: Blocks) -> None:
    assert cells(blocks.whole) == [cell for block in blocks for cell in cells(block)]
    assert blocks == Blocks(list(blocks))
    assert blocks != list(blocks)


@given(blocks_of_all_kinds(), st.data())
def test_regroup_makes_coarser_blocks(blocks: Blocks, data: st.DataObject) -> None:
    indices = st.lists(st.integers(0, len(blocks) - 1), max_size=3)
    groups = data.draw(st.lists(indices, max_size=4))

    coarse = blocks.regroup(groups)

    assert [cells(block) for block in coarse] == [
        [cell for i in group for cell in cells(blocks[i])] for group in groups
    ]


def test_repr_names_the_buffers() -> None:
    region = Region((INPUT, 0, 2), (OUTPUT, 1, 3), (SCRATCH + 1, 0, 4))

    assert repr(region) == "Region(input[0:2], output[1:3], scratch1[0:4])"
    assert repr(Region((INPUT, 0, 4)).split(2)) == "Blocks(Region(input[0:2]), Region(input[2:4]))"


def test_token_is_sent_and_nothing_is_not() -> None:
    full = Region((OUTPUT, 0, 1))

    assert all(map(is_message, (Send(TOKEN, 1), Recv(TOKEN, 1), SendInts((), 1), RecvInts(1, 1))))
    assert all(map(is_message, (Send(full, 1), Recv(full, 1))))
    assert not any(map(is_message, (Send(EMPTY, 1), Recv(full.part(1, 1), 1), Copy(full, full))))


# Schedules

ROUNDS = [
    Send(TOKEN, to=1),
    (),
    [Send(TOKEN, to=2), Recv(TOKEN, source=0, lane=3)],
    Round((Copy(EMPTY, EMPTY),), window=5),
]


def steps_of(some: Iterable[object]) -> Steps:
    yield from (step for step in some)  # type: ignore[misc]


def test_everything_yielded_becomes_a_round_and_empty_ones_are_left_out() -> None:
    assert list(rounds(steps_of(ROUNDS))) == [
        Round((Send(TOKEN, 1),)),
        Round((Send(TOKEN, 2), Recv(TOKEN, 0, 3))),
        Round((Copy(EMPTY, EMPTY),), 5),
    ]
    assert as_round(ROUNDS[0]) == Round((Send(TOKEN, 1),))  # type: ignore[arg-type]


def asking(log: list[object], peer: int, times: int) -> Steps:
    """Ask a peer for an integer several times, with a round without questions in between."""
    for number in range(times):
        got = yield Send(TOKEN, peer), RecvInts(number, source=peer)
        log.append(got)
        got = yield Send(TOKEN, peer)
        log.append(got)


def answered(schedule: Schedule) -> list[Round]:
    """Run a schedule that is sent its own questions as answers."""
    done: list[Round] = []
    answer = None
    while True:
        try:
            done.append(schedule.send(answer))  # type: ignore[arg-type]
        except StopIteration:
            return done
        asked = [action for action in done[-1].actions if isinstance(action, RecvInts)]
        answer = [(a.source, a.count) for a in asked]


def test_answers_reach_the_algorithm() -> None:
    log: list[object] = []

    answered(rounds(asking(log, 7, 2)))

    assert log == [[(7, 0)], [], [(7, 1)], []]


def test_merged_streams_have_lanes_and_answers_of_their_own() -> None:
    first: list[object] = []
    second: list[object] = []

    merged = answered(rounds(merge(asking(first, 1, 1), asking(second, 2, 2))))

    assert first == [[(1, 0)], []]
    assert second == [[(2, 0)], [], [(2, 1)], []]
    assert merged[0] == Round(
        (Send(TOKEN, 1, 0), RecvInts(0, 1, 0), Send(TOKEN, 2, 1), RecvInts(0, 2, 1))
    )
    assert len(merged) == 4


def test_nested_merges_do_not_share_lanes() -> None:
    def one() -> Steps:
        yield Send(TOKEN, 0), Send(TOKEN, 0, lane=1), Copy(EMPTY, EMPTY)

    merged = next(rounds(merge(merge(one(), one()), one(), merge(one(), one()))))

    lanes = [action.lane for action in merged.actions if isinstance(action, Send)]
    assert len(set(lanes)) == len(lanes) == 10


def test_merge_keeps_the_widest_window() -> None:
    merged = rounds(merge(steps_of([Round((Copy(EMPTY, EMPTY),), 2)]), steps_of([ROUNDS[3]])))

    assert next(merged).window == 5


def test_merge_of_nothing_is_nothing() -> None:
    assert list(rounds(merge())) == []
    assert list(rounds(merge(steps_of([]), steps_of([()])))) == []


def test_renumbering_changes_peers_only() -> None:
    log: list[object] = []
    region = Region((OUTPUT, 0, 1))
    local = Combine(region, region, region)

    changed = list(renumber(steps_of([*ROUNDS, [local, SendInts((3,), to=0)]]), [5, 9, 7]))
    asked = answered(renumber(asking(log, 1, 1), [5, 9]))

    assert changed[0] == Round((Send(TOKEN, 9),))
    assert changed[1] == Round((Send(TOKEN, 7), Recv(TOKEN, 5, 3)))
    assert changed[2].window == 5
    assert changed[3] == Round((local, SendInts((3,), to=5)))
    assert asked[0] == Round((Send(TOKEN, 9), RecvInts(0, 9)))
    assert log == [[(9, 0)], []]


# Calls


def test_call_knows_its_neighbors_and_its_place() -> None:
    call = Call("bcast", 4, 5, root=3, output=Region((OUTPUT, 0, 10)))

    assert (call.left, call.right, call.relative_rank) == (3, 0, 1)
    assert [call.absolute(r) for r in range(5)] == [3, 4, 0, 1, 2]
    assert [len(block) for block in call.output_blocks] == [2] * 5
    assert call.nodes == (0,) * 5


@pytest.mark.parametrize(("segment", "cells_"), [(0, 0), (1, 1), (8, 1), (17, 2), (800, 100)])
def test_segment_is_given_in_bytes(segment: int, cells_: int) -> None:
    assert Call("reduce", 0, 2, cell_bytes=8).segment_cells(segment) == cells_


def test_sub_call_shares_scratch_and_knows_its_group() -> None:
    call = Call("allreduce", 2, 4, input=Region((INPUT, 0, 8)), nodes=(0, 0, 1, 1), cell_bytes=8)
    first = call.scratch(3)

    sub = call.sub("allgather", ranks=[3, 2], root=1, output=call.input.split(2))
    second = sub.scratch(4)

    assert (sub.rank, sub.size, sub.root) == (1, 2, 1)
    assert (sub.nodes, sub.sizes, sub.cell_bytes) == ((1, 1), [4, 4], 8)
    assert (first.pieces, second.pieces) == (((SCRATCH, 0, 3),), ((SCRATCH + 1, 0, 4),))
    assert list(call.scratch_sizes) == [3, 4]


def test_in_place_is_common_cells() -> None:
    output = Region((OUTPUT, 0, 8))

    assert Call("allgather", 0, 2, input=output.part(0, 4), output=output).in_place
    assert not Call("allgather", 0, 2, input=Region((INPUT, 0, 4)), output=output).in_place


def test_call_with_other_input_keeps_its_blocks() -> None:
    call = Call("alltoall", 0, 2, input=Region((OUTPUT, 0, 5)).blocks([2, 3]))
    moved = call.with_input(call.scratch(5))

    assert [block.pieces for block in moved.input_blocks] == [((2, 0, 2),), ((2, 2, 5),)]
