"""Per-image state between steps: named, budgeted, saved with checkpoints, kept on the rank that sees the image."""

from tagfill.memory.background import BackgroundArray
from tagfill.memory.class_distances import ClassDistances
from tagfill.memory.entries import Entries
from tagfill.memory.estimates import Estimates
from tagfill.memory.found_labels import FoundLabels
from tagfill.memory.heatmaps import Heatmaps
from tagfill.memory.journal import JournaledArray
from tagfill.memory.kept_scores import KeptScores
from tagfill.memory.memory import Memory
from tagfill.memory.neighbours import Neighbours
from tagfill.memory.overlay import ChangedLabels
from tagfill.memory.prior import Prior, read_prior
from tagfill.memory.pseudo_labels import PseudoLabels
from tagfill.memory.scores import Scores
from tagfill.memory.shard import SavedPart, Shard, below

__all__ = [
    "BackgroundArray",
    "ChangedLabels",
    "ClassDistances",
    "Entries",
    "Estimates",
    "FoundLabels",
    "Heatmaps",
    "JournaledArray",
    "KeptScores",
    "Memory",
    "Neighbours",
    "Prior",
    "PseudoLabels",
    "SavedPart",
    "Scores",
    "Shard",
    "below",
    "read_prior",
]
