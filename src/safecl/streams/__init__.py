"""Where the pictures come from: streams of sessions, by name or of anybody's own."""

from safecl.streams.catalog import names, open_stream
from safecl.streams.images import Pictures, Transform, augment
from safecl.streams.loader import batches
from safecl.streams.sources import from_arrays, from_hugging_face, from_torch
from safecl.streams.stream import Session, Stream

__all__ = [
    "Pictures",
    "Session",
    "Stream",
    "Transform",
    "augment",
    "batches",
    "from_arrays",
    "from_hugging_face",
    "from_torch",
    "names",
    "open_stream",
]
