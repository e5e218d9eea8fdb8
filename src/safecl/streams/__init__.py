"""Streams of sessions: the embedded one, published datasets, and a user's own pictures."""

from safecl.streams.catalog import open_stream
from safecl.streams.crops import augment
from safecl.streams.images import Pictures, Transform
from safecl.streams.loader import batches
from safecl.streams.settings import StreamSettings, names, parse_stream
from safecl.streams.sources import from_arrays, from_hugging_face, from_torch
from safecl.streams.stream import Session, Stream

__all__ = [
    "Pictures",
    "Session",
    "Stream",
    "StreamSettings",
    "Transform",
    "augment",
    "batches",
    "from_arrays",
    "from_hugging_face",
    "from_torch",
    "names",
    "open_stream",
    "parse_stream",
]
