from __future__ import annotations

import pytest

from methods.cases import batch_of, maps_of, task_of
from tagfill.errors import TagfillError
from tagfill.methods import METHODS, create, first_epoch

ALL_IMAGES = [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("typo", "meant"), [("rol", "role"), ("sc", "scl"), ("bcee", "bce")])
def test_the_nearest_method_is_suggested(typo, meant):
    with pytest.raises(TagfillError, match=f"There is no method '{typo}'; did you mean '{meant}'"):
        create(typo)


@pytest.mark.parametrize("name", ["en+", "", "en + scl"])
def test_names_are_taken_literally(name):
    with pytest.raises(TagfillError, match="There is no method"):
        create(name)


@pytest.mark.parametrize("name", ["cl", "scl", "cl+scl"])
def test_terms_that_do_not_look_at_labels_are_refused_alone(name):
    with pytest.raises(
        TagfillError, match=f"'{name.replace('+', '[+]')}' does not learn from labels; add it to a method"
    ):
        create(name)


def test_a_part_named_twice_is_refused():
    with pytest.raises(TagfillError, match=r"'en\+en' names a part twice"):
        create("en+en")


def test_options_of_a_part_that_is_not_there_are_refused():
    with pytest.raises(TagfillError, match=r"options for 'cl', which is not part of the method 'en\+scl'"):
        create("en+scl", {"cl": {"weight": 0.1}})


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(TagfillError, match="no option 'momentun' of method 'en'; did you mean 'momentum'"):
        create("en", {"en": {"momentun": 0.9}})


def test_an_option_of_a_method_without_options_is_refused():
    with pytest.raises(TagfillError, match="no option 'weight' of method 'an'"):
        create("an", {"an": {"weight": 0.9}})


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("fe", {"unknown_as": "maybe"}, "should be 'absent' or 'present'"),
        ("ignore", {"reduction": "mien"}, "should be 'mean'"),
        ("curriculum", {"every": 1.5}, "should be a valid integer"),
        ("asl", {"margin": None}, "should be a valid number"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused(name, options, problem):
    (option,) = options
    with pytest.raises(TagfillError, match=f"Option {option}=.* of method '{name}': .*{problem}"):
        create(name, {name: options})


def test_a_number_may_be_written_as_text():
    """YAML reads 1e-5, without a dot, as text."""
    create("an", {"an": {"eps": "1e-5"}})


@pytest.mark.parametrize("name", ["an+role", "role+scl+an", "cl+en+bce"])
def test_two_methods_that_learn_from_labels_do_not_add_up(name):
    with pytest.raises(
        TagfillError,
        match=r"both learn from labels and cannot be added; .* add terms to it: cl, fixmatch, patchcluster, scl",
    ):
        create(name)


def test_an_alias_takes_the_options_of_its_method_under_either_name():
    batch, prediction = batch_of(ALL_IMAGES), maps_of(ALL_IMAGES)
    by_name, by_alias = (
        create(name, {name: {"reduction": "sum"}}).loss(batch, prediction) for name in ("ignore", "ne")
    )
    assert by_name == by_alias == create("ne", {"ignore": {"reduction": "sum"}}).loss(batch, prediction)


def test_an_alias_beside_its_method_is_the_same_part_twice():
    with pytest.raises(TagfillError, match="names a part twice"):
        create("ne+ignore")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_tells_what_it_is_and_where_it_was_published(name):
    first_line = (METHODS[name].__doc__ or "").partition("\n")[0]
    assert first_line.endswith(".")
    assert METHODS[name]().paper  # type: ignore[attr-defined]


def test_a_sum_has_the_terms_of_its_parts():
    alone, beside, together = create("en"), create("an+scl"), create("en+scl")
    for method in (alone, beside, together):
        method.setup(task_of())
        method.begin_epoch(1)
    batch, prediction = batch_of(ALL_IMAGES), maps_of(ALL_IMAGES)
    terms = together.loss(batch, prediction)
    assert set(terms) == {"en", "scl"}
    assert terms["en"] == alone.loss(batch, prediction)["en"]
    assert terms["scl"] == beside.loss(batch, prediction)["scl"]


def test_a_sum_needs_what_its_parts_need():
    assert create("an+cl").needs == {"memory"}
    assert create("en+scl").needs == {"maps", "memory", "expected_positives"}


def test_the_state_of_each_part_comes_back_to_it():
    class Counting:
        needs = frozenset()

        def __init__(self) -> None:
            self.state = {}

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            self.state = state

    from tagfill.methods import Sum

    parts, again = [Counting() for _ in range(11)], [Counting() for _ in range(11)]
    for number, part in enumerate(parts):
        part.state = {"a.b": number}
    Sum(again).load_state_dict(Sum(parts).state_dict())
    assert [part.state for part in again] == [{"a.b": number} for number in range(11)]


def test_methods_say_when_they_begin():
    begins = {"an": 1, "wan": 1, "role": 1, "ll-r": 2, "en+scl": 2, "splc": 2, "curriculum": 2, "em-apl": 6}
    assert {name: first_epoch(create(name), 10) for name in begins} == begins
    assert first_epoch(create("em-apl"), 3) == 2  # its warm-up is half of the stage
    assert first_epoch(create("splc", {"splc": {"warmup": 4}}), 3) == 5
    assert first_epoch(object(), 3) == 1
