from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagfill.data import Sampler
from tagfill.errors import TagfillError

modest = settings(max_examples=40, deadline=None)


@st.composite
def fleets(draw) -> list[Sampler]:
    """The samplers of all ranks of a run."""
    world = draw(st.integers(1, 4))
    size = draw(st.integers(world, 40))
    batch = world * draw(st.integers(1, 6))
    seed = draw(st.integers(0, 5))
    return [Sampler(size, batch, seed, rank, world) for rank in range(world)]


def visited(sampler: Sampler, epoch: int) -> list[int]:
    return np.concatenate(sampler.batches(epoch)).tolist()


@modest
@given(fleet=fleets())
def test_shards_are_disjoint_and_cover_everything(fleet):
    shards = np.concatenate([sampler.shard for sampler in fleet])
    assert sorted(shards.tolist()) == list(range(fleet[0].size))


@modest
@given(fleet=fleets(), epoch=st.integers(1, 9))
def test_every_rank_visits_the_same_number_of_images_each_once(fleet, epoch):
    for sampler in fleet:
        visits = visited(sampler, epoch)
        assert len(visits) == len(set(visits)) == sampler.size // sampler.world
        assert set(visits) <= set(sampler.shard.tolist())


@modest
@given(fleet=fleets(), epoch=st.integers(1, 9))
def test_number_and_size_of_batches_are_the_same_on_every_rank(fleet, epoch):
    lengths = [[len(batch) for batch in sampler.batches(epoch)] for sampler in fleet]
    assert all(own == lengths[0] for own in lengths)
    assert all(length == fleet[0].batch_size // fleet[0].world for length in lengths[0][:-1])
    assert len(lengths[0]) == fleet[0].steps


@pytest.mark.parametrize("rank", [0, 1])
def test_another_image_is_left_out_in_each_epoch(rank):
    """Of 8 images three ranks visit two each; ranks 0 and 1 have three and leave each of them out in turn."""
    sampler = Sampler(8, 3, 0, rank, 3)
    left_out = [set(sampler.shard.tolist()) - set(visited(sampler, epoch)) for epoch in (1, 2, 3)]
    assert set.union(*left_out) == set(sampler.shard.tolist())


def test_a_rank_without_surplus_visits_all_its_images():
    sampler = Sampler(8, 3, 0, 2, 3)
    assert sorted(visited(sampler, 1)) == sampler.shard.tolist()


def test_epochs_differ_in_order():
    sampler = Sampler(30, 10, 0)
    assert visited(sampler, 1) != visited(sampler, 2)


def test_seeds_differ_in_order():
    assert visited(Sampler(30, 10, 0), 1) != visited(Sampler(30, 10, 1), 1)


def test_seeds_differ_in_shards():
    assert Sampler(30, 10, 0, 0, 2).shard.tolist() != Sampler(30, 10, 1, 0, 2).shard.tolist()


def test_an_epoch_does_not_depend_on_when_it_is_requested():
    sampler = Sampler(30, 8, 3, 1, 2)
    sampler.batches(4)
    assert visited(sampler, 2) == visited(Sampler(30, 8, 3, 1, 2), 2)


def test_a_shard_stays_the_same_over_epochs():
    sampler = Sampler(9, 2, 0, 0, 2)
    assert set().union(*(visited(sampler, epoch) for epoch in range(1, 8))) == set(sampler.shard.tolist())


def test_a_batch_that_cannot_be_split_evenly_is_refused():
    with pytest.raises(TagfillError, match="A batch of 7 cannot be split evenly among 2 processes"):
        Sampler(30, 7, 0, 0, 2)


def test_more_processes_than_images_are_refused():
    with pytest.raises(TagfillError, match="2 training images for 3 processes; use fewer processes"):
        Sampler(2, 3, 0, 0, 3)


UNLABELED = np.arange(30, 100)


def test_labeled_images_alone_are_visited_once_per_epoch():
    sampler = Sampler(100, 10, 0, unlabeled=UNLABELED, labeled_share=1.0)
    assert sampler.steps == 3
    assert sorted(visited(sampler, 2)) == list(range(30))
    everything_labeled = Sampler(20, 10, 0, unlabeled=np.arange(0), labeled_share=1.0)
    assert sorted(visited(everything_labeled, 1)) == list(range(20))


def test_labeled_epochs_draw_the_same_labeled_images_with_and_without_unlabeled_ones():
    alone = Sampler(100, 10, 0, unlabeled=UNLABELED, labeled_share=1.0)
    mixed = Sampler(100, 20, 0, unlabeled=UNLABELED, labeled_share=0.5, labeled_epochs=True)
    for epoch in (1, 4):
        labeled = [batch[batch < 30].tolist() for batch in mixed.batches(epoch)]
        assert labeled == [batch.tolist() for batch in alone.batches(epoch)]
        assert [len(batch) for batch in mixed.batches(epoch)] == [20, 20, 20]


@pytest.mark.parametrize("epoch", [1, 2])
def test_ranks_take_as_many_steps_if_they_have_unequal_numbers_of_labeled_images(epoch):
    fleet = [Sampler(100, 8, 3, rank, 4, UNLABELED, 1.0) for rank in range(4)]
    assert {len(sampler.batches(epoch)) for sampler in fleet} == {fleet[0].steps} == {4}
    assert set(np.concatenate([visited(sampler, epoch) for sampler in fleet]).tolist()) <= set(range(30))


@pytest.mark.parametrize(("unlabeled", "share", "kind"), [((), 0.5, "unlabeled"), (range(20), 1.0, "labeled")])
def test_a_share_of_images_that_do_not_exist_is_refused(unlabeled, share, kind):
    with pytest.raises(TagfillError, match=f"there are no {kind} images; leave it out"):
        Sampler(20, 10, 0, unlabeled=np.array(unlabeled, dtype=np.int64), labeled_share=share)
