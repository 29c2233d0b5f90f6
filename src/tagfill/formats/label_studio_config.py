"""Labeling configurations of Label Studio: written for a dataset, and read to understand a project's own.

A plain list of checkboxes cannot tell "looked and found nothing" from "not looked at". The configurations written here
can, and every submitted annotation says which of the two it means:

| layout | controls |
|---|---|
| `list` | `present`: checkboxes of all classes; `others`, required: the other classes are absent, or unknown; `absent` and `cannot-tell`, folded away: checkboxes for single classes |
| `per-class` | `class:NAME` for each class: present, absent or cannot tell; a class without an answer is unknown |

Both may have boxes (`box`) and points (`point`). `list` takes one click for "everything else is absent" and suits any
number of classes; `per-class` asks about each class and suits about ten.

A project's own configuration is read with `LabelingConfig.parse`: its `Choices`, `RectangleLabels`, `KeyPointLabels`
and `PolygonLabels` of an image. A choice stands for the class of the same name as its value, its alias, or one of its
`predicted_values`; letter case and outer blanks decide nothing if only one class fits.
"""  # noqa: E501  rows of a table

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from tagfill.errors import DatasetError, one_of

LAYOUTS = ("list", "per-class")
ABSENT, CANNOT_TELL, OTHERS, UNKNOWN = "absent", "cannot-tell", "others", "unknown"
CONTROLS = {True: "present", False: ABSENT, None: CANNOT_TELL}  # control, or choice of a class, that says this
STATES = {name: state for state, name in CONTROLS.items()}
CLASS_PREFIX = "class:"
MAX_CHARACTERS = 2**21
_INNER = {
    "Choices": "Choice",
    "RectangleLabels": "Label",
    "KeyPointLabels": "Label",
    "PolygonLabels": "Label",
}


def labeling_config(
    classes: Sequence[str], *, layout: str = "list", boxes: bool = False, points: bool = False, image_key: str = "image"
) -> str:
    """Write the configuration for some classes, to paste into a project or to send to Label Studio's API.

    Args:
        classes: names in order.
        layout: `list` or `per-class`.
        boxes: add boxes with the classes.
        points: add points with the classes.
        image_key: the key of the image in the data of a task.

    >>> print(labeling_config(["cat"], layout="per-class"))  # doctest: +ELLIPSIS
    <View>
      <Image name="image" value="$image"/>
      <Header value="cat" size="6"/>
      <Choices name="class:cat" toName="image" choice="single" showInline="true">
        <Choice value="present"/>
    ...
    """
    one_of("layout", layout, LAYOUTS)
    lines = ["<View>", f'  <Image name="image" value={quoteattr("$" + image_key)}/>']
    lines += _list_layout(classes) if layout == "list" else _per_class_layout(classes)
    for tag, name, wanted in (("RectangleLabels", "box", boxes), ("KeyPointLabels", "point", points)):
        if wanted:
            lines += _control(tag, name, ((label, None) for label in classes))
    return "\n".join([*lines, "</View>", ""])


def _list_layout(classes: Sequence[str]) -> list[str]:
    named = [(label, None) for label in classes]
    others = [("absent: I looked for every one of them", ABSENT), ("unknown: I did not look for all of them", UNKNOWN)]
    required = 'required="true" requiredMessage="Please say whether you looked for the other tags."'
    several = 'choice="multiple" showInline="true"'
    return [
        '  <Header value="The photo shows" size="5"/>',
        *_control("Choices", CONTROLS[True], named, several),
        '  <Header value="All other tags are" size="5"/>',
        *_control("Choices", OTHERS, others, f'choice="single" showInline="true" {required}'),
        '  <Collapse bordered="true"><Panel value="Say it for single tags">',
        '  <Header value="Absent" size="6"/>',
        *_control("Choices", ABSENT, named, several),
        '  <Header value="Cannot tell" size="6"/>',
        *_control("Choices", CANNOT_TELL, named, several),
        "  </Panel></Collapse>",
    ]


def _per_class_layout(classes: Sequence[str]) -> list[str]:
    answers = [("present", None), ("absent", None), ("cannot tell", CANNOT_TELL)]
    lines = []
    for label in classes:
        lines.append(f'  <Header value={quoteattr(label)} size="6"/>')
        lines += _control("Choices", CLASS_PREFIX + label, answers, 'choice="single" showInline="true"')
    return lines


def _control(tag: str, name: str, words: Iterable[tuple[str, str | None]], more: str = "") -> list[str]:
    """A control with its words, each with the alias that results have instead, if any."""
    inner = _INNER[tag]
    return [
        f'  <{tag} name={quoteattr(name)} toName="image"{" " * bool(more)}{more}>',
        *(
            f"    <{inner} value={quoteattr(word)}" + (f" alias={quoteattr(alias)}/>" if alias else "/>")
            for word, alias in words
        ),
        f"  </{tag}>",
    ]


@dataclass(frozen=True)
class Control:
    """Something in a configuration that annotators use to name classes of an image.

    Attributes:
        name: `from_name` of its results.
        kind: type of its results: `choices`, `rectanglelabels`, `keypointlabels` or `polygonlabels`.
        image: name of the image, `to_name` of its results.
        multiple: several choices may be taken.
        classes: the class of each word that results may have.
        label: the class that all of its choices are about; None for a control that lists classes.
    """

    name: str
    kind: str
    image: str
    multiple: bool
    classes: Mapping[str, str]
    label: str | None = None

    @cached_property
    def words(self) -> dict[str, str]:
        """The word that results have for each class."""
        return {label: word for word, label in reversed(list(self.classes.items()))}


@dataclass(frozen=True)
class LabelingConfig:
    """What a labeling configuration asks about the classes of a dataset or a model.

    Attributes:
        controls: those about an image, in order.
        image_keys: the key in the data of a task, by the name of each image.
        unmatched: words that stand for no class.
    """

    controls: tuple[Control, ...]
    image_keys: Mapping[str, str]
    unmatched: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, classes: Sequence[str]) -> LabelingConfig:
        """Read a configuration.

        Args:
            text: its XML.
            classes: that it may ask about; other words are `unmatched`.

        Raises:
            DatasetError: it is not XML, too long, or defines entities.

        >>> tags = '<Choices name="c" toName="i"><Choice value="Cat"/></Choices>'
        >>> own = f'<View><Image name="i" value="$url"/>{tags}</View>'
        >>> LabelingConfig.parse(own, ["cat", "dog"]).controls[0].classes
        {'Cat': 'cat'}
        """
        root = _parse_xml(text)
        keys = {image.get("name", ""): image.get("value", "").removeprefix("$") for image in root.iter("Image")}
        find = _ClassFinder(classes)
        controls = tuple(
            control
            for element in root.iter()
            if element.tag in _INNER and element.get("toName") in keys and element.get("perRegion") != "true"
            for control in [_parse_control(element, find)]
        )
        return cls(controls, keys, tuple(dict.fromkeys(find.unmatched)))

    def control(self, name: str) -> Control | None:
        """The control with this name."""
        return next((control for control in self.controls if control.name == name), None)

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """Classes that an annotator can say to be present without drawing anything, in order."""
        found: dict[str, None] = {}
        for control in self.controls:
            if control.kind == "choices" and control.name not in (ABSENT, CANNOT_TELL, OTHERS):
                found |= dict.fromkeys([control.label] if control.label is not None else control.classes.values())
        return tuple(found)

    @property
    def tells_absent(self) -> bool:
        """Whether annotators can say that a class is absent."""
        return any(control.name in (ABSENT, OTHERS) or control.label is not None for control in self.controls)

    def image_key(self) -> str | None:
        """The key of the image in the data of a task: that of the first control, else of the first image."""
        names = [control.image for control in self.controls] or list(self.image_keys)
        return self.image_keys[names[0]] if names else None


def _parse_xml(text: str) -> ElementTree.Element:
    if len(text) > MAX_CHARACTERS:
        raise DatasetError(f"The labeling configuration has more than {MAX_CHARACTERS:,} characters; shorten it.")
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise DatasetError("The labeling configuration defines a document type or entities; take them out.")
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the latter two for encodings
        raise DatasetError(f"The labeling configuration is not valid XML: {error}.") from None


def _parse_control(element: ElementTree.Element, find: _ClassFinder) -> Control:
    name = element.get("name", "")
    words = [inner for inner in element.iter(_INNER[element.tag]) if inner.get("value") or inner.get("alias")]
    about = find.class_of(name.removeprefix(CLASS_PREFIX)) if name.startswith(CLASS_PREFIX) else None
    found: dict[str, str] = {}
    if about is None and name != OTHERS:
        for inner in words:
            if (label := find(inner)) is not None:
                found.setdefault(inner.get("alias") or inner.attrib["value"], label)
    return Control(
        name,
        element.tag.lower(),
        element.get("toName", ""),
        element.get("choice") == "multiple",
        found,
        about,
    )


class _ClassFinder:
    """Finds the class that a choice or label stands for."""

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes = set(classes)
        self._folded: dict[str, str | None] = {}
        for label in classes:
            key = label.strip().casefold()
            self._folded[key] = None if key in self._folded else label
        self.unmatched: list[str] = []

    def class_of(self, word: str) -> str | None:
        """The class of this name, or the only one that differs in letter case or blanks at most."""
        return word if word in self._classes else self._folded.get(word.strip().casefold())

    def __call__(self, element: ElementTree.Element) -> str | None:
        names = [element.get("value", ""), element.get("alias", ""), *element.get("predicted_values", "").split(",")]
        found = next((label for name in names if name.strip() and (label := self.class_of(name)) is not None), None)
        if found is None:
            self.unmatched.append(names[0] or names[1])
        return found
