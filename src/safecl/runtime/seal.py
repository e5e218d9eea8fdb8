"""The digest of an exported file: the last entry of its metadata, over all that stands before.

It shows that a file was damaged or changed. Whoever changes a file on purpose can make another
digest.
"""

import hashlib
from collections.abc import Mapping

KEY = b"digest"
LETTERS = 64  # of SHA-256, which browsers know as well
_SAID = b"\x0a%c%s\x12%c" % (len(KEY), KEY, LETTERS)  # an entry of protobuf: a key, a value
# field 14 of a model, which may stand anywhere in it
_HEAD = b"\x72%c%s" % (
    len(_SAID) + LETTERS,
    _SAID,
)


def sealed(data: bytes) -> bytes:
    """The bytes of a file, and their digest."""
    return data + _HEAD + _digest(data)


def is_sealed(data: bytes) -> bool:
    """Whether the bytes of a file end in the digest of those before."""
    end = len(data) - LETTERS
    start = end - len(_HEAD)
    return (
        start >= 0 and data[start:end] == _HEAD and data[end:] == _digest(memoryview(data)[:start])
    )


def says_digest(metadata: Mapping[str, str]) -> bool:
    return KEY.decode() in metadata


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
