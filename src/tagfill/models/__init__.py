"""Classifiers: backbones, of timm or of your own, with heads that give one `Prediction`."""

from tagfill.models.backbone import Backbone, Preprocessing, Seen, create_backbone
from tagfill.models.boost import boost
from tagfill.models.cam import CamHead
from tagfill.models.classifier import Classifier, create
from tagfill.models.head import Head
from tagfill.models.heads import HEADS, create_head
from tagfill.models.linear import LinearHead
from tagfill.models.own import BACKBONES
from tagfill.models.query import QueryHead
from tagfill.models.tscam import TsCamHead, coupled

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
