"""Classifiers: backbones, of timm or of your own, with heads that give one `Prediction`."""

from tagfill.models.backbone import BACKBONES, Backbone, Preprocessing, Seen, create_backbone
from tagfill.models.classifier import HEADS, Classifier, create, create_head
from tagfill.models.heads import CamHead, Head, LinearHead, TsCamHead, boost, coupled
from tagfill.models.query import QueryHead

__all__ = [
    "BACKBONES",
    "HEADS",
    "Backbone",
    "CamHead",
    "Classifier",
    "Head",
    "LinearHead",
    "Preprocessing",
    "QueryHead",
    "Seen",
    "TsCamHead",
    "boost",
    "coupled",
    "create",
    "create_backbone",
    "create_head",
]
