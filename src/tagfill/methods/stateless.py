"""The old home of `tagfill.methods.BaseMethod`, kept for one version."""

from __future__ import annotations

from tagfill.deprecation import renamed

__getattr__ = renamed(__name__, {"Stateless": "tagfill.methods.base.BaseMethod"})
