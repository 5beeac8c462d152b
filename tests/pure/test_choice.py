"""The grammar of choices: what is written can be read, and reads as meant."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collx.choice import Choice, parse

names = st.from_regex(r"[a-z][a-z_0-9]{0,11}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name)
)
integers = st.integers(-(2**40), 2**40)
tuples = st.lists(integers, min_size=1, max_size=4).map(tuple)


def choices_of(values: st.SearchStrategy[object]) -> st.SearchStrategy[Choice]:
    items = st.lists(st.tuples(names, values), max_size=3, unique_by=lambda item: item[0])
    return st.builds(Choice, names, items.map(tuple))


nested = st.recursive(
    integers | names | tuples,
    lambda values: choices_of(values).filter(lambda choice: choice.items),
    max_leaves=6,
)


@given(choices_of(nested))
def test_text_of_a_choice_reads_as_the_choice(choice: Choice) -> None:
    assert parse(str(choice)) == choice


@given(choices_of(nested))
def test_spaces_do_not_matter(choice: Choice) -> None:
    assert parse(f"  {str(choice).replace('=', ' = ').replace('(', '( ')} ") == choice


@given(choices_of(nested))
def test_choice_is_read_as_itself(choice: Choice) -> None:
    assert parse(choice) is choice
    assert choice.parameters == dict(choice.items)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("segment=1", 1),
        ("segment=64K", 65536),
        ("segment=2M", 2**21),
        ("segment=1G", 2**30),
        ("shift=-3", -3),
        ("factors=(2, 3)", (2, 3)),
        ("factors=(4,)", (4,)),
        ("factors=(1K, -1)", (1024, -1)),
        ("inter=ring", "ring"),
        ("inter=ring(segment=8K)", Choice("ring", (("segment", 8192),))),
        ("inter=a(b=c(d=1))", Choice("a", (("b", Choice("c", (("d", 1),))),))),
    ],
)
def test_value_is_read(text: str, value: object) -> None:
    assert parse(f"two_level({text})").items == ((text.partition("=")[0], value),)


@pytest.mark.parametrize("text", ["ring", "ring()", " ring "])
def test_name_alone_is_a_choice(text: str) -> None:
    assert parse(text) == Choice("ring")
    assert str(parse(text)) == "ring"


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "3", "two level", "ring(", "ring)", "-ring", "(ring)x"),
        *("ring(4)", "ring(segment)", "ring(segment=1.5)", "ring(segment='a')", "ring(a=b.c)"),
        *("ring(factors=(a,))", "ring(factors=[1])", "ring(**{})", "ring(*a)", "a.b(c=1)"),
        *("ring(a=1)(b=2)", "ring; ring", "__import__('os')"),
        *("ring(a=~1)", "lambda: 0"),
    ],
)
def test_nonsense_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ValueError, match="write it as name or name") as error:
        parse(text)

    assert repr(text) in str(error.value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        choice = parse(text)
    except ValueError:
        return
    assert parse(str(choice)) == choice
