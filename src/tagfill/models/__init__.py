"""Classifiers: timm backbones with heads that give one `Prediction`."""

from tagfill.models.backbone import Backbone, Preprocessing, Seen, create_backbone
from tagfill.models.boost import boost
from tagfill.models.cam import CamHead
from tagfill.models.classifier import HEADS, Classifier, create, create_head
from tagfill.models.head import Head

__all__ = [
    "HEADS",
    "Backbone",
    "CamHead",
    "Classifier",
    "Head",
    "Preprocessing",
    "Seen",
    "boost",
    "create",
    "create_backbone",
    "create_head",
]
