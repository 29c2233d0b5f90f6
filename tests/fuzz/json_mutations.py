"""JSON: values of other types, keys in another order, entries lost and repeated, other numbers for ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from fuzz.promises import Promise

STRANGE: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 2**31, 2**63, 10**30, 10**400, -(10**30), 0.5, 1e308, -1e308),
    *("", "x", "..", "/", "9" * 5000, "\ud800", "\0", "http://[", "0001-01-01T00:00:00+14:00"),
    *([], {}, [[]], [None], [{}], {"a": 1}, {"size": [2**40, 2**40], "counts": [2**80]}),
)
_IDS = ("id", "image_id", "category_id", "neg_category_ids", "not_exhaustive_category_ids")


def reordered(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """Keys, and entries of lists of objects, in another order."""

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shuffled(value[key]) for key in rng.sample(list(value), len(value))}
        if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
            return [shuffled(entry) for entry in rng.sample(value, len(value))]
        return value

    return _dumped(shuffled(json.loads(content))), Promise.SAME


def repeated(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """An entry of a list, twice."""
    value = json.loads(content)
    lists = [entry for entry in _containers(value) if isinstance(entry, list) and entry]
    if lists:
        chosen = rng.choice(lists)
        at = rng.randrange(len(chosen))
        chosen.insert(at, chosen[at])
    return _dumped(value), Promise.SAME_OR_REFUSED


def key_twice(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """A key of the outermost object again, with fewer entries, or one of an inner object, with the same value."""
    value = json.loads(content)
    if isinstance(value, dict) and rng.random() < 0.5:
        key = rng.choice(list(value))
        less = value[key][:-1] if isinstance(value[key], list) else value[key]
        return _dumped(value)[:-1] + b"," + _dumped({key: less})[1:], Promise.SAME_OR_REFUSED
    lines = _dumped(value).split(b"\n")
    plain = [at for at, line in enumerate(lines) if b'": ' in line and line.endswith(b",") and b"[" not in line]
    if plain:
        at = rng.choice(plain)
        lines.insert(at, lines[at])
    return b"\n".join(lines), Promise.SAME_OR_REFUSED


def retyped(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """A value that is written as another type."""
    value = json.loads(content)
    container, key = rng.choice(list(_places(value)))
    held = container[key]
    others: list[Any] = [[held]]
    if isinstance(held, bool | int | float):
        others += [json.dumps(held), float(held), int(held) if held == int(held) else held]
    if held in (0, 1) and not isinstance(held, float):
        others += [bool(held)]
    if isinstance(held, list) and len(held) == 1:
        others += held
    container[key] = rng.choice(others)
    return _dumped(value), Promise.SAME_OR_REFUSED


def replaced(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """Something strange in place of a value."""
    value = json.loads(content)
    container, key = rng.choice(list(_places(value)))
    container[key] = rng.choice(STRANGE)
    return _dumped(value), Promise.NO_CRASH


def lost(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """A key or an entry that is missing."""
    value = json.loads(content)
    container, key = rng.choice(list(_places(value)))
    del container[key]
    return _dumped(value), Promise.NO_CRASH


def nested(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """Lists inside lists in place of a value."""
    value = json.loads(content)
    container, key = rng.choice(list(_places(value)))
    container[key] = "here"
    depth = rng.choice((60, 3000, 100_000))
    return _dumped(value).replace(b'"here"', b"[" * depth + b"]" * depth, 1), Promise.NO_CRASH


def renumbered(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """All ids larger by the same number, however large."""
    more = rng.choice((10**9, 2**31, 2**53, 2**63, 10**30))

    def larger(value: Any, is_id: bool) -> Any:
        if isinstance(value, dict):
            return {key: larger(entry, key in _IDS) for key, entry in value.items()}
        if isinstance(value, list):
            return [larger(entry, is_id) for entry in value]
        return value + more if is_id and isinstance(value, int) else value

    promise = Promise.SAME if more < 2**63 else Promise.SAME_OR_REFUSED
    return _dumped(larger(json.loads(content), False)), promise


ALL = [reordered, repeated, key_twice, retyped, replaced, lost, nested, renumbered]


def _dumped(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _containers(entry)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every object or list, with each of its keys or positions."""
    for container in _containers(value):
        yield from ((container, key) for key in (container if isinstance(container, dict) else range(len(container))))
