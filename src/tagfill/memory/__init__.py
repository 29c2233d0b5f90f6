"""Per-image state between steps: named, budgeted, saved with checkpoints, kept on the rank that sees the image."""

from tagfill.memory.base import SavedPart, Shard, sub_state
from tagfill.memory.disk import BackgroundArray, JournaledArray
from tagfill.memory.heatmaps import Heatmaps
from tagfill.memory.memory import Memory
from tagfill.memory.neighbors import ClassDistances, Neighbors
from tagfill.memory.sparse import ChangedLabels, Entries, FoundLabels, PseudoLabels
from tagfill.memory.statistics import Prior, read_prior
from tagfill.memory.tables import Estimates, Scores, TopKScores

__all__ = [
    "BackgroundArray",
    "ChangedLabels",
    "ClassDistances",
    "Entries",
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
