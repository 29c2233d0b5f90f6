"""Slow and obvious: each formula once more, in plain loops over lists, written from the formula alone."""
