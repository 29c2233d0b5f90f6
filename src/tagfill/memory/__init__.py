"""Per-image state between steps: named, budgeted, saved with checkpoints, kept on the rank that sees the image."""

from tagfill.deprecation import renamed
from tagfill.memory.base import SavedPart, Shard, sub_state
from tagfill.memory.disk import BackgroundArray, JournaledArray
from tagfill.memory.estimates import Estimates
from tagfill.memory.heatmaps import Heatmaps
from tagfill.memory.memory import Memory
from tagfill.memory.neighbors import ClassDistances, Neighbors
from tagfill.memory.pseudo_labels import ChangedLabels, FoundLabels, PseudoLabels
from tagfill.memory.scores import EntrySet, Scores, TopKScores
from tagfill.memory.statistics import Prior, read_prior

__all__ = [
    "BackgroundArray",
    "ChangedLabels",
    "ClassDistances",
    "EntrySet",
    "Estimates",
    "FoundLabels",
    "Heatmaps",
    "JournaledArray",
    "Memory",
    "Neighbors",
    "Prior",
    "PseudoLabels",
    "SavedPart",
    "Scores",
    "Shard",
    "TopKScores",
    "read_prior",
    "sub_state",
]

__getattr__ = renamed(
    __name__,
    {"Entries": "EntrySet", "KeptScores": "TopKScores", "Neighbours": "Neighbors", "below": "sub_state"},
)
