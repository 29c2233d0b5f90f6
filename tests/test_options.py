from __future__ import annotations

from typing import Literal

import pytest

from tagfill.errors import TagfillError
from tagfill.options import (
    check_options,
    option_parameters,
    parse_assignment,
    parse_options,
    parse_settings,
    parse_value,
    parse_values,
    require_options,
)


def draw(
    data: str, *, share: float, kind: Literal["box", "point"] = "box", size: tuple[int, int] = (1, 1), seed: int = 0
) -> None:
    """A function with options."""


class Head:
    """A class with an option."""

    def __init__(self, channels: int, *, boost: float = 1.0) -> None: ...


def test_only_the_first_equals_sign_separates():
    assert parse_assignment("url=http://x?a=b", example="") == ("url", "http://x?a=b")


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("1e-3", 0.001), ("0.5", 0.5), ("true", True), ("null", None), ("disk", "disk"), ("[1, 2]", [1, 2])],
)
def test_values_are_read_as_yaml_with_exponents(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_a_value_that_is_not_yaml_is_refused():
    with pytest.raises(TagfillError, match="not a valid value"):
        parse_value("[1")


def test_values_are_separated_by_commas():
    assert parse_values("1e-3,disk,[1,2]", example="") == [0.001, "disk", [1, 2]]


@pytest.mark.parametrize(("text", "message"), [("", "There is no value"), ("[1", "not a list of values")])
def test_values_that_are_missing_or_broken_are_refused(text, message):
    with pytest.raises(TagfillError, match=f"{message}.*write it as in --set K=1,2"):
        parse_values(text, example="--set K=1,2")


def test_settings_keep_their_order():
    assert parse_settings(["b=1", "a=2", "b=3"]) == (("b", 1), ("a", 2), ("b", 3))


def test_options_are_keyword_only_parameters_without_seed_and_progress():
    assert list(option_parameters(draw)) == ["share", "kind", "size"]
    assert list(option_parameters(Head)) == ["boost"]


def test_options_are_converted_to_the_declared_types():
    values = check_options(draw, {"share": "1e-5", "size": [2, 3]}, "protocol 'draw'")
    assert values == {"share": 1e-5, "size": (2, 3)}
    assert type(check_options(Head, {"boost": 5}, "head 'cam'")["boost"]) is float


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shar": 1.0}, "There is no option 'shar' of protocol 'draw'; did you mean 'share'"),
        ({"seed": 1}, "There is no option 'seed' of protocol 'draw'"),
        ({"kind": "mask"}, "Option kind='mask' of protocol 'draw': Input should be 'box' or 'point'"),
    ],
)
def test_unknown_options_and_values_are_refused(options, message):
    with pytest.raises(TagfillError, match=message):
        check_options(draw, options, "protocol 'draw'")


def test_texts_become_options():
    values = parse_options(draw, ["share=0.5", "kind=point", "size=[2, 3]"], "protocol 'draw'")
    assert values == {"share": 0.5, "kind": "point", "size": (2, 3)}


def test_a_reader_comes_before_the_declared_type():
    values = parse_options(draw, ["size=2x3"], "protocol 'draw'", readers={"size": lambda text: text.split("x")})
    assert values == {"size": ["2", "3"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("share", "'share' has no value; write it as in --option NAME=VALUE"),
        ("share=much", "Option share=much of protocol 'draw': "),
        ("sha-re=1", "There is no option 'sha_re' of protocol 'draw'; did you mean 'share'"),
    ],
)
def test_texts_that_are_no_options_are_refused(text, message):
    with pytest.raises(TagfillError, match=message):
        parse_options(draw, [text], "protocol 'draw'")


def test_an_option_without_a_default_must_be_given():
    with pytest.raises(TagfillError, match="The protocol 'draw' needs --option share="):
        require_options(draw, {"kind": "box"}, "protocol 'draw'")
    require_options(draw, {"share": 0.5}, "protocol 'draw'")
