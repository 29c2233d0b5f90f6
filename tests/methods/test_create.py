from __future__ import annotations

import pytest

from methods.cases import batch_of, maps_of, task_of, visit
from tagfill.errors import TagfillError
from tagfill.methods import METHODS, create

EVERYBODY = [0, 1, 2, 3, 4, 5]


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
    with pytest.raises(TagfillError, match=f"'{name.replace('+', '[+]')}' does not look at labels; add it to a method"):
        create(name)


def test_a_part_named_twice_is_refused():
    with pytest.raises(TagfillError, match=r"'en\+en' names a part twice"):
        create("en+en")


def test_options_of_a_part_that_is_not_there_are_refused():
    with pytest.raises(TagfillError, match=r"options for 'cl', which is not part of the method 'en\+scl'"):
        create("en+scl", {"cl": {"weight": 0.1}})


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(TagfillError, match="no option of method 'en' 'momentun'; did you mean 'momentum'"):
        create("en", {"en": {"momentun": 0.9}})


def test_an_option_of_a_method_without_options_is_refused():
    with pytest.raises(TagfillError, match="no option of method 'an' 'weight'"):
        create("an", {"an": {"weight": 0.9}})


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"cl", "scl"}))
def test_every_method_takes_a_step(name):
    task, method = task_of(), create(name)
    method.setup(task)
    method.begin_epoch(1)
    assert all(term.isfinite() for term in visit(method, task, EVERYBODY, maps_of(EVERYBODY)).values())


def test_a_sum_has_the_terms_of_its_parts():
    alone, beside, together = create("en"), create("an+scl"), create("en+scl")
    for method in (alone, beside, together):
        method.setup(task_of())
        method.begin_epoch(1)
    batch, prediction = batch_of(EVERYBODY), maps_of(EVERYBODY)
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
