"""Attune: fused attention."""

__version__ = "0.1.0"
