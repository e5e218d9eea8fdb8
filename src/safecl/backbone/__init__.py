"""The frozen pre-trained ViT: loading it, and computing its features fast."""

from safecl.backbone.backbone import Backbone
from safecl.backbone.load import EMBEDDED, PAPER, SUFFIXES, BackboneSettings, embedded_weights, load_backbone

__all__ = ["EMBEDDED", "PAPER", "SUFFIXES", "Backbone", "BackboneSettings", "embedded_weights", "load_backbone"]
