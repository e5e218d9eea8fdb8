"""The model file: a zip of safetensors and one JSON, none of it compressed; docs/format.md says it
all.

``model.json`` comes last and says everything but the numbers, with the size and the digest of every
other member; the comment of the zip is the digest of ``model.json``. So what was changed after it
was written is found. Reading the header needs no torch. No pickle, no weight of the backbone and,
unasked, no picture is in it.
"""

import hashlib
import io
import json
import os
import stat
import struct
import uuid
import weakref
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeAlias

from safetensors import SafetensorError

from safecl.atomic import Buffer
from safecl.errors import SafeclError

if TYPE_CHECKING:
    from torch import Tensor

    from safecl.classifier.modelfile.schema import Header, Thumbnail

SUFFIX = ".safecl"
HEADER = "model.json"
SEAL = b"safecl "  # the comment of the zip: this and the digest of the header
# what stands before a member of a zip, besides its name and what is extra
LOCAL = struct.Struct("<4s5H3L2H")
UTF8 = 0x800
ZIP64_EXTRA = 20  # the one flag that a member may have, and the bytes of its sizes
MAX_DIRECTORY = 1 << 22  # bytes at the end of a file in which its directory is
UNZIPPED = (
    zipfile.BadZipFile,
    NotImplementedError,
    EOFError,
    ValueError,
    OSError,
    OverflowError,
    struct.error,
)
MISFITS = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    RuntimeError,
    AssertionError,
    MemoryError,
    OverflowError,
    SafetensorError,
)
Members: TypeAlias = Mapping[str, Iterable[Buffer]]


class ModelFile:
    """An open model file; members are read, and their digests compared, on demand.

    It is opened once: where another file takes its place, this is the old one still. Threads may
    share it.
    """

    def __init__(self, path: str | Path) -> None:
        # the form of settings is slow to import, and a wrong name is answered at once
        from safecl.classifier.modelfile import schema

        self.path = Path(path).expanduser()
        self._source = _Source(self.path)
        self.size = self._source.size
        try:
            places, comment = _places(self._source)
            if places[HEADER][1] > schema.MAX_HEADER:
                raise ValueError(f"{HEADER} has more than {schema.MAX_HEADER:,} bytes")
            text = self._source.at(*places[HEADER])
        except KeyError:
            raise self._foreign(f"there is no {HEADER} in it") from None
        except UNZIPPED as error:
            raise self._foreign(str(error).strip("'\". ").lower()) from None
        self.header = schema.load(text, str(self.path))
        self.digest = digest(text)
        if comment != SEAL + self.digest.encode():
            raise SafeclError("model.header.changed", path=self.path)
        earlier = self.header != json.loads(text)  # written by one whose settings had other names
        schema.check(json.dumps(self.header).encode() if earlier else text, str(self.path))
        self.sizes = {name: one["size"] for name, one in self.header["members"].items()}
        self._places = {
            name: places.get(f"{self.header['state']}/{name}", (0, -1)) for name in self.sizes
        }
        found = {name: size for name, (_, size) in self._places.items()}
        if len(places) != len(found) + 1 or found != self.sizes:
            raise self._foreign("its members are not those that its header names")

    @property
    def version(self) -> str:
        """The beginning of its digest, for people."""
        return self.digest[:12]

    def raw(self, member: str) -> bytes:
        """The bytes of a member, once its digest is found right."""
        reason = "it is not what was written"
        try:
            found = self._source.at(*self._places[member])
            if digest(found) == self.header["members"][member]["digest"]:
                return found
        except EOFError:
            reason = "it ends too early"
        except MemoryError:
            size = self.sizes[member] / 1e9
            raise SafeclError(
                "model.member.too-large", member=member, path=self.path, gigabytes=size
            ) from None
        raise SafeclError("model.member.damaged", path=self.path, member=member, reason=reason)

    def thumbnails(self) -> tuple["Thumbnail", ...]:
        """The pictures that the model keeps, if it may keep any."""
        from safecl.classifier.modelfile.schema import THUMBNAILS, Thumbnails, check

        if THUMBNAILS not in self.sizes:
            return ()
        found = check(self.raw(THUMBNAILS), f"{self.path} ({THUMBNAILS})", Thumbnails).pictures
        if any(one.place >= len(self.header["classes"]) for one in found):
            raise SafeclError("model.thumbnails.damaged", path=self.path, member=THUMBNAILS)
        return tuple(found)

    def tensors(self, member: str) -> "dict[str, Tensor]":
        """The tensors of a member; all of their numbers are finite."""
        from safecl.engine.checkpoint import decode
        from safecl.heads.tensors import not_finite

        found = decode(self.raw(member), f"{member} of {self.path}")[0]
        if (name := not_finite(found)) is not None:
            raise SafeclError("model.member.not-finite", path=self.path, member=member, tensor=name)
        return found

    def _foreign(self, reason: str) -> SafeclError:
        if self.path.suffix.lower() == ".onnx":
            return SafeclError("model.exported", path=self.path)
        return SafeclError("model.foreign", path=self.path, reason=reason)


@contextmanager
def fitting(file: ModelFile | None) -> Iterator[None]:
    """What tensors that do not belong together make torch raise is a sentence about ``file``, where
    they are of one.
    """
    try:
        yield
    except MISFITS as error:
        if file is None:
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SafeclError("model.parts.misfit", path=file.path, reason=reason) from error


class _Source:
    """The bytes of one plain file by position; read through one descriptor, which is closed when
    this is collected.
    """

    def __init__(self, path: Path) -> None:
        try:
            # Without O_NONBLOCK a FIFO waits for its other end.
            handle = os.open(
                path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
            )
            weakref.finalize(self, os.close, handle)
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise (
                    IsADirectoryError
                    if stat.S_ISDIR(facts.st_mode)
                    else OSError("it is no plain file")
                )
        except FileNotFoundError:
            raise _no_model(path) from None
        except IsADirectoryError:
            raise SafeclError("model.folder", path=path) from None
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from None
        self.path = path
        self.size = facts.st_size
        self._handle = handle
        # Windows has no pread, and replaces no file that is open.
        self._content = None if hasattr(os, "pread") else path.read_bytes()

    def at(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on."""
        found = (
            b"".join(self._parts(offset, size))
            if self._content is None
            else self._content[offset : offset + size]
        )
        if len(found) != size:
            raise EOFError("it ends too early")
        return found

    def _parts(self, offset: int, size: int) -> Iterator[bytes]:
        try:
            # a call gives 2 GB at most
            while size and (part := os.pread(self._handle, size, offset)):
                yield part
                offset = offset + len(part)
                size = size - len(part)
        except OSError as error:
            raise _unreadable(self.path, error) from None


def _no_model(path: Path) -> SafeclError:
    """What makes a model at ``path``, or what else may be meant: the names of all end alike."""
    if path.suffix.lower() == SUFFIX:
        return SafeclError("model.missing", path=path)
    near = path.with_name(f"{path.name}{SUFFIX}")
    hint = f"did you mean {near}?" if near.is_file() else f"the name of a model ends in {SUFFIX}."
    return SafeclError("model.missing.near", path=path, hint=hint)


def _places(source: _Source) -> tuple[dict[str, tuple[int, int]], bytes]:
    """(where the bytes of each member are: offset and size, the comment of the zip).

    Only stored members are accepted, one right behind the other, and nothing before, between or
    behind them.
    """
    before = max(source.size - MAX_DIRECTORY, 0)  # bytes that are not looked at for the directory
    with zipfile.ZipFile(io.BytesIO(source.at(before, source.size - before))) as archive:
        members = archive.infolist()
        comment = archive.comment
        directory = before + archive.start_dir
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for member in members:
        name = member.orig_filename.encode()
        kind, _, flags, method, *_, letters, extra = LOCAL.unpack(source.at(end, LOCAL.size))
        start = end + LOCAL.size + letters + extra
        begins = before + member.header_offset == end and kind == b"PK\x03\x04"
        if not begins or source.at(end + LOCAL.size, letters) != name:
            raise ValueError("there is something before or between its members")
        if method or member.compress_type or member.compress_size != member.file_size:
            raise ValueError(f"{member.filename:.80} is compressed")
        if (flags | member.flag_bits) & ~UTF8 or extra > ZIP64_EXTRA:
            raise ValueError(f"{member.filename:.80} is encrypted, or was written in another way")
        if member.filename in places:
            raise ValueError(f"{member.filename:.80} is in it twice")
        places[member.filename], end = (start, member.file_size), start + member.file_size
    if end != directory:
        raise ValueError("there is something behind its members")
    if comment.startswith(SEAL) and source.at(source.size - len(comment) - 22, 4) != b"PK\x05\x06":
        raise ValueError("there is something behind its end")
    return places, comment


def write_zip(file: BinaryIO, header: "Header", members: Members) -> None:
    """Write a model: ``header``, which gets its format, a new id of the state, and the facts of the
    ``members``.
    """
    from safecl.classifier.modelfile.schema import FORMAT, MAX_HEADER, check

    state = uuid.uuid4().hex
    facts = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, parts in members.items():
            with archive.open(zipfile.ZipInfo(f"{state}/{name}"), "w", force_zip64=True) as member:
                facts[name] = _copied(parts, member)
        said = {**header, "format": FORMAT, "state": state, "members": facts}
        text = json.dumps(said, ensure_ascii=False, allow_nan=False).encode()
        check(text, None)
        if len(text) > MAX_HEADER:
            raise SafeclError("model.header.too-large", most=MAX_HEADER)
        archive.writestr(zipfile.ZipInfo(HEADER), text)
        archive.comment = SEAL + digest(text).encode()


def _copied(parts: Iterable[Buffer], member: IO[bytes]) -> dict[str, Any]:
    """Write the parts of a member; gives its size and digest."""
    size = 0
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        member.write(part)
        found.update(part)
        size += memoryview(part).nbytes
    return {"size": size, "digest": found.hexdigest()}


def digest(data: Buffer) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _unreadable(path: Path, error: Exception) -> SafeclError:
    return SafeclError(
        "model.unreadable", path=path, reason=getattr(error, "strerror", None) or str(error)
    )
