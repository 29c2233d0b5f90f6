"""Tagfill trains multi-label image classifiers from partly labelled images, and fills in the rest."""
