"""Continual-learning algorithms behind one contract: ``learn(session)``, ``logits(images)``."""

from safecl.methods.catalog import METHODS, MethodSettings, make_method
from safecl.methods.method import Fit, Method

__all__ = ["METHODS", "Fit", "Method", "MethodSettings", "make_method"]
