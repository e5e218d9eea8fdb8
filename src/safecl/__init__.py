"""Continual image classification on a frozen pre-trained Vision Transformer, by slow and fast tuning (SAFE)."""

__version__ = "0.1.0"
