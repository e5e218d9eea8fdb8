"""Fetch published files: what broke off resumes, and a file gets its name only when it has been verified."""

import glob
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import IO

from filelock import FileLock

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import md5_of, open_source
from safecl.streams.datasets.dataset import Archive, Dataset


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
    url = str(archive.url)
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            said = answer.headers
            if said.get_content_type() == "text/html" and "Content-Type" in said:
                raise SafeclError(f"{url} answers with a web page and not with the file; fetch it by hand.")
            partial, start = _partial(to, said)
            if not start:
                _copy(answer, partial, "wb")
        total = said.get("Content-Length")
        if start and str(start) != total:
            ask = {"Range": f"bytes={start}-", "If-Range": str(_validator(said))}
            with urllib.request.urlopen(urllib.request.Request(url, headers=ask), timeout=60) as answer:
                goes_on = answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
                _copy(answer, partial, "ab" if goes_on else "wb")
    except urllib.error.HTTPError as error:
        raise SafeclError(f"{url} answers {error.code} {error.reason}; fetch it by hand.") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise SafeclError(f"{url} cannot be fetched ({reason}); run the command again to resume.") from None
    got = partial.stat().st_size
    if total is not None and got < int(total):
        raise SafeclError(f"{url} broke off after {got:,} of {int(total):,} bytes; run the command again to resume.")
    try:
        if total is not None and got > int(total):
            raise SafeclError(f"{url} sends more than it announces; try again or fetch it by hand.")
        _verify(archive, partial)
    except SafeclError:
        partial.unlink()
        raise
    os.replace(partial, to)


def _partial(to: Path, headers: Message) -> tuple[Path, int]:
    """The first part of the very file that the server has, and how much of it is there; that of another is removed.

    Its name says which file it is of, so at no moment are bytes taken for those of another.
    """
    validator = _validator(headers)
    known = hashlib.blake2b(f"{validator} {headers.get('Content-Length')}".encode(), digest_size=8).hexdigest()
    partial = to.with_name(f"{to.name}.{known}.partial")
    for other in to.parent.glob(f"{glob.escape(to.name)}.*.partial"):
        if other != partial or validator is None:
            other.unlink()
    return partial, partial.stat().st_size if partial.exists() else 0


def _copy(answer: IO[bytes], partial: Path, mode: str) -> None:
    with open(partial, mode) as out:
        shutil.copyfileobj(answer, out, 1 << 20)


def _verify(archive: Archive, path: Path) -> None:
    """The published md5 or, for a zip without one, that every member can be read."""
    if archive.md5 and md5_of(path) != archive.md5:
        raise SafeclError(f"{archive.url} is not the published file (its md5 differs); try again or fetch it by hand.")
    if archive.name.endswith(".zip") and not archive.md5:
        try:
            open_source(path).check()
        except SafeclError as error:
            raise SafeclError(f"{archive.url} is not a whole archive; try again or fetch it by hand: {error}") from None


def _validator(headers: Message) -> str | None:
    """The value for If-Range: a strong ETag, or else the date of the last change."""
    tag = headers.get("ETag", "")
    return tag if tag.startswith('"') else headers.get("Last-Modified")
