"""Fetch published files: what broke off resumes, and a file gets its name only when it has been verified."""

import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any

from filelock import FileLock

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import md5_of, open_source
from safecl.streams.datasets.dataset import Archive, Dataset

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


def download(dataset: Dataset, folder: Path, say: Callable[[str], None] = lambda line: None) -> Path:
    """Fetch what is open to software; gives the folder or the archive to prepare from."""
    fetchable = [archive for archive in dataset.archives if archive.url]
    if not fetchable:
        raise SafeclError(f"{dataset.title} needs a person to fetch it: {dataset.fetch}")
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # two downloads would append to the same file
        for archive in fetchable:
            say(f"Fetching {archive.url}")
            fetch(archive, folder / archive.name)
    return folder if len(fetchable) > 1 else folder / fetchable[0].name


def fetch(archive: Archive, to: Path) -> None:
    """Download to ``to``. A broken-off download resumes if the server's file is still the same, else it starts over."""
    if to.exists():
        return
    partial = to.with_name(f"{to.name}.partial")
    if not _transfer(archive, partial):
        _discard(partial)
        if not _transfer(archive, partial):
            raise SafeclError(f"{archive.url} sends more than it announces; fetch it by hand.")
    try:
        _verify(archive, partial)
    except SafeclError:
        _discard(partial)
        raise
    os.replace(partial, to)
    _discard(partial)


def _transfer(archive: Archive, partial: Path) -> bool:
    """Fetch what is missing of ``partial``; False if it is not the beginning of the server's file."""
    url, note = str(archive.url), _read_note(partial)
    start = partial.stat().st_size if partial.exists() and "validator" in note else 0
    if start and str(start) == note.get("length"):
        return True
    headers = {"Range": f"bytes={start}-", "If-Range": note["validator"]} if start else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            first, total = _span(answer.headers)
            if not start or answer.status != 206:
                _start_over(url, partial, answer.headers)
            elif first != start or _validator(answer.headers) not in (None, note["validator"]):
                return False
            with open(partial, "ab") as out:
                shutil.copyfileobj(answer, out, 1 << 20)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # the file has become shorter; or this is all of it, if its length was unknown
            return "length" not in note and _span(error.headers)[1] == start
        raise SafeclError(f"{url} answers {error.code} {error.reason}; fetch it by hand.") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise SafeclError(f"{url} cannot be fetched ({reason}); run the command again to resume.") from None
    got = partial.stat().st_size
    if total is not None and got < total:
        raise SafeclError(f"{url} broke off after {got:,} of {total:,} bytes; run the command again to resume.")
    return total is None or got == total


def _start_over(url: str, partial: Path, headers: Message) -> None:
    """An empty file, then the note on what will be in it: at no moment does a note belong to other bytes."""
    if headers.get_content_type() == "text/html" and "Content-Type" in headers:
        raise SafeclError(f"{url} answers with a web page and not with the file; fetch it by hand.")
    partial.write_bytes(b"")
    said = {"validator": _validator(headers), "md5": _md5(headers), "length": headers.get("Content-Length")}
    _note_of(partial).write_text(json.dumps(said), encoding="utf-8")


def _verify(archive: Archive, path: Path) -> None:
    """The published md5, or else the server's and, for an archive, that every member can be read."""
    expected = archive.md5 or _read_note(path).get("md5")
    if expected and md5_of(path) != expected:
        whose = "the published file" if archive.md5 else "the server's file"
        raise SafeclError(f"{archive.url} is not {whose} (its md5 differs); try again or fetch it by hand.")
    if archive.name.endswith(ARCHIVES) and not archive.md5:
        try:
            open_source(path).check()
        except SafeclError as error:
            raise SafeclError(f"{archive.url} is not a whole archive; try again or fetch it by hand: {error}") from None


def _span(headers: Message) -> tuple[int, int | None]:
    """The position of the first byte, and the length of the whole file where it is known."""
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", headers.get("Content-Range", ""))
    if found:
        return int(found[1] or 0), int(found[2]) if found[2] != "*" else None
    length = headers.get("Content-Length")
    return 0, int(length) if length is not None else None


def _validator(headers: Message) -> str | None:
    """The value for If-Range: a strong ETag, or else the date of the last change."""
    tag = headers.get("ETag", "")
    return tag if tag.startswith('"') else headers.get("Last-Modified")


def _md5(headers: Message) -> str | None:
    """The md5 of the contents, where the server gives one."""
    for value in (headers.get("Content-MD5"), *re.findall(r"md5=([^,\s]+)", headers.get("x-goog-hash", ""))):
        with contextlib.suppress(ValueError):
            if value:
                return base64.b64decode(value).hex()
    # The ETag of an S3 object is its md5 unless it was uploaded in parts (then it has a dash) or encrypted by a key.
    plain = "x-amz-request-id" in headers and headers.get("x-amz-server-side-encryption", "AES256") == "AES256"
    found = re.fullmatch(r'"([0-9a-f]{32})"', headers.get("ETag", ""))
    return found[1] if found and plain else None


def _note_of(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _read_note(partial: Path) -> dict[str, str]:
    """What the server said of a file whose first part is here: its validator (ETag or date), md5 and length."""
    try:
        said: Any = json.loads(_note_of(partial).read_text(encoding="utf-8"))
        return {key: value for key, value in said.items() if isinstance(value, str)}
    except (OSError, ValueError, AttributeError):
        return {}


def _discard(partial: Path) -> None:
    for path in (partial, _note_of(partial)):
        path.unlink(missing_ok=True)
