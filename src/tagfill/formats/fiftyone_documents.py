"""The documents in a folder of FiftyOne: a dataset with the schema of its fields, and its samples.

They have the form in which FiftyOne's `FiftyOneDatasetExporter` writes what is in its database: identities are
`{"$oid": …}`, and fields are described by the classes of FiftyOne that hold them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tagfill.dataset import Dataset
from tagfill.formats.writer import ImageRows

STATES: dict[str, bool | None] = {"present": True, "absent": False, "unknown": None}

_VERSION = "1.0.0"  # of the layout; FiftyOne refuses folders of a newer version than its own, and migrates older ones
_LABELS = "fiftyone.core.labels."
_FIELDS = "fiftyone.core.fields."


def sample_document(dataset_name: str, entry: ImageRows, path: str, field: str) -> dict[str, Any]:
    """Return an image with its known labels as a sample.

    Args:
        dataset_name: part of its identity.
        entry: the image.
        path: of its file, absolute or relative to the folder.
        field: for its labels; it has no value if nothing is annotated.
    """
    digest = hashlib.sha256(f"{dataset_name}\0{entry.image}".encode()).hexdigest()
    sample: dict[str, Any] = {
        "_id": {"$oid": digest[:24]},
        "filepath": path,
        "tags": [entry.split],
        "_media_type": "image",
        "_rand": int(digest[24:36], 16) / 16**12,
        "split": entry.split,
        "metadata": None,
    }
    if entry.size:
        sample["metadata"] = {"_cls": "ImageMetadata", "width": entry.size[0], "height": entry.size[1]}
    words = {state: word for word, state in STATES.items()}
    known = [{"label": label, "confidence": None, "state": words[state]} for label, state in entry.states.items()]
    sample[field] = classifications(sample, field, known) if known else None
    return sample


def classifications(sample: dict[str, Any], field: str, labels: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the value of a field of a sample: classifications with these attributes."""
    identity = f"{sample['_id']['$oid']}\0{field}\0"
    return {
        "_cls": "Classifications",
        "classifications": [
            {
                "_id": {"$oid": hashlib.sha256((identity + label["label"]).encode()).hexdigest()[:24]},
                "_cls": "Classification",
                "tags": [],
                **label,
            }
            for label in labels
        ],
    }


def dataset_document(dataset: Dataset, root: Path | None, label_fields: list[str]) -> dict[str, Any]:
    """Return the document of a dataset, as FiftyOne exports it.

    Args:
        dataset: the dataset.
        root: of its images if samples refer to them, which `read` finds again.
        label_fields: names of the fields with classifications.
    """
    info = {"tagfill": {"root": str(root)} if root else {}}
    return {
        "name": dataset.name,
        "version": _VERSION,
        "persistent": False,
        "media_type": "image",
        "tags": [],
        "info": info,
        "classes": {name: list(dataset.classes) for name in label_fields},
        "default_classes": list(dataset.classes),
        "mask_targets": {},
        "default_mask_targets": {},
        "skeletons": {},
        "sample_fields": [
            _field("filepath", "StringField"),
            _field("tags", "ListField", subfield=f"{_FIELDS}StringField"),
            _field("_media_type", "StringField"),
            _field("id", "ObjectIdField", db_field="_id"),
            _field("created_at", "DateTimeField", read_only=True),
            _field("_rand", "FloatField"),
            _field("metadata", "EmbeddedDocumentField", "fiftyone.core.metadata.ImageMetadata", fields=_METADATA),
            _field("_dataset_id", "ObjectIdField"),
            _field("last_modified_at", "DateTimeField", read_only=True),
            _field("split", "StringField"),
            *(
                _field(name, "EmbeddedDocumentField", f"{_LABELS}Classifications", fields=_CLASSIFICATIONS)
                for name in label_fields
            ),
        ],
        "frame_fields": [],
        "saved_views": [],
        "workspaces": [],
        "annotation_runs": {},
        "brain_methods": {},
        "evaluations": {},
        "runs": {},
    }


def _field(name: str, kind: str, document: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "ftype": _FIELDS + kind,
        "embedded_doc_type": document,
        "subfield": None,
        "fields": [],
        "db_field": name,
        "description": None,
        "info": None,
        "read_only": False,
        "created_at": None,
    } | more


_METADATA = [
    _field("size_bytes", "IntField"),
    _field("mime_type", "StringField"),
    _field("width", "IntField"),
    _field("height", "IntField"),
    _field("num_channels", "IntField"),
]
_CLASSIFICATION = [
    _field("id", "ObjectIdField", db_field="_id"),
    _field("tags", "ListField", subfield=f"{_FIELDS}StringField"),
    _field("label", "StringField"),
    _field("confidence", "FloatField"),
    _field("logits", "VectorField"),
    _field("state", "StringField"),
]
_CLASSIFICATIONS = [
    _field(
        "classifications",
        "ListField",
        f"{_LABELS}Classification",
        subfield=f"{_FIELDS}EmbeddedDocumentField",
        fields=_CLASSIFICATION,
    ),
    _field("logits", "VectorField"),
]
