"""XML: elements lost, repeated and moved, texts and attributes changed."""

from __future__ import annotations

from random import Random
from xml.etree import ElementTree

from fuzz.promises import Promise

STRANGE = (
    *("", "x", "-1", "0", "0.5", "nan", "inf", "1e999", "9" * 12, "9" * 30, "9" * 5000, "1_0", "²", "..", "/", "true"),
    *("1,2", "1;2", ",;", "猫", "1e308", "2147483648"),
)
_ENCODINGS = (b"utf-16", b"latin-1", b"no-such", b"utf-8", b"punycode", b"gbk")


def reordered(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    root = ElementTree.fromstring(content)
    for element in root.iter():
        element[:] = rng.sample(list(element), len(element))
        element.attrib = dict(rng.sample(list(element.attrib.items()), len(element.attrib)))
    return _written(root), Promise.SAME


def repeated(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    root = ElementTree.fromstring(content)
    parent, child = rng.choice(_pairs(root))
    parent.insert(list(parent).index(child), child)
    return _written(root), Promise.SAME_OR_REFUSED


def spaced(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """White space around a text."""
    root = ElementTree.fromstring(content)
    element = rng.choice([element for element in root.iter() if (element.text or "").strip()])
    element.text = f"\n {element.text}\t"
    return _written(root), Promise.SAME_OR_REFUSED


def commented(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """A comment between two elements."""
    parts = content.split(b">")
    at = rng.randrange(2, len(parts) - 1)
    return b">".join(parts[:at]) + b"><!-- <object> -->" + b">".join(parts[at:]), Promise.SAME


def lost(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    root = ElementTree.fromstring(content)
    parent, child = rng.choice(_pairs(root))
    if child.attrib and rng.random() < 0.5:
        child.attrib.pop(rng.choice(list(child.attrib)))
    else:
        parent.remove(child)
    return _written(root), Promise.NO_CRASH


def replaced(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    root = ElementTree.fromstring(content)
    element = rng.choice(list(root.iter()))
    if element.attrib and rng.random() < 0.7:
        element.set(rng.choice(list(element.attrib)), rng.choice(STRANGE))
    elif rng.random() < 0.8:
        element.text = rng.choice(STRANGE)
    else:
        element.tag = rng.choice(("annotation", "annotations", "image", "track", "object", "box", "name", "size"))
    return _written(root), Promise.NO_CRASH


def declared(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """A declaration of an encoding that may not be the file's."""
    start = b'<?xml version="1.0" encoding="' + rng.choice(_ENCODINGS) + b'"?>'
    return start + _written(ElementTree.fromstring(content)), Promise.NO_CRASH


ALL = [reordered, repeated, spaced, commented, lost, replaced, declared]


def _pairs(root: ElementTree.Element) -> list[tuple[ElementTree.Element, ElementTree.Element]]:
    return [(parent, child) for parent in root.iter() for child in parent]


def _written(root: ElementTree.Element) -> bytes:
    return ElementTree.tostring(root, encoding="utf-8")
