"""Fetch published files: what broke off resumes, and a file gets its name only when it has been
verified.
"""

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import md5_of
from safecl.streams.datasets.dataset import Archive, Dataset

SILENCE = 60.0  # seconds without a byte after which a server is given up
PIECE = 1 << 20  # bytes that are written at a time
# name of the file, its bytes so far, and all of them where the server says so
Shown = Callable[[str, int, int | None], None]


def download(
    dataset: Dataset,
    folder: Path,
    say: Callable[[str], None] = lambda line: None,
    shown: Shown = lambda name, done, total: None,
) -> Path:
    """Fetch what is open to software; gives the folder or the archive to prepare from."""
    fetchable = [archive for archive in dataset.archives if archive.url]
    if not fetchable:
        raise SafeclError("dataset.download.by-hand", title=dataset.title, fetch=dataset.fetch)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # two downloads would write to the same file
        for archive in fetchable:
            say(f"Fetching {archive.url}")
            fetch(archive, folder / archive.name, shown=shown)
    return folder if len(fetchable) > 1 else folder / fetchable[0].name


def fetch(
    archive: Archive,
    to: Path,
    silence: float = SILENCE,
    shown: Shown = lambda name, done, total: None,
) -> None:
    """Download to ``to``, unless it is there; ``silence``: seconds to wait for the next byte.

    What broke off resumes if the server's file is still the one that it began with, by its mark
    (ETag or date); else it starts over.
    """
    if to.exists():
        return
    url = str(archive.url)
    partial = to.with_name(f"{to.name}.partial")
    mark = to.with_name(f"{to.name}.mark")
    try:
        with asked(url, partial, mark, silence) as answer:
            if answer.headers.get_content_type() == "text/html":
                raise SafeclError("dataset.download.web-page", url=url)
            resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
            begun = partial.stat().st_size if resumed else 0
            length = answer.headers.get("Content-Length")
            total = None if length is None else begun + int(length)
            if not resumed:
                mark.write_text(mark_of(answer.headers), encoding="utf-8")
            with open(partial, "ab" if resumed else "wb") as file:
                while piece := answer.read(PIECE):
                    file.write(piece)
                    shown(archive.name, file.tell(), total)
                got = file.tell()
        if total is not None and got < total:
            raise OSError(f"got only {got} out of {total} bytes")
    except (OSError, http.client.HTTPException) as error:
        if not resumable(partial, mark):
            forget(partial, mark)
        raise SafeclError("dataset.download.failed", url=url, error=error) from None
    if archive.md5 and md5_of(partial) != archive.md5:
        forget(partial, mark)
        raise SafeclError("dataset.download.checksum", url=url)
    os.replace(partial, to)
    mark.unlink()


def asked(url: str, partial: Path, mark: Path, silence: float) -> Any:
    """The server's answer: the rest of what ``partial`` holds if it still has that file, else
    all.
    """
    if resumable(partial, mark):
        known = mark.read_text(encoding="utf-8")
        words = {"Range": f"bytes={partial.stat().st_size}-", "If-Range": known}
        try:
            return urllib.request.urlopen(
                urllib.request.Request(url, headers=words), timeout=silence
            )
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
    return urllib.request.urlopen(url, timeout=silence)


def resumable(partial: Path, mark: Path) -> bool:
    """Whether there is a beginning, and a mark of the file that it is the beginning of."""
    return all(file.exists() and file.stat().st_size for file in (partial, mark))


def mark_of(headers: Any) -> str:
    """What tells this file of the server from another; a weak ETag does not."""
    tag = headers.get("ETag", "")
    strong = "" if tag.startswith("W/") else tag
    return str(strong or headers.get("Last-Modified", ""))


def forget(*files: Path) -> None:
    for file in files:
        file.unlink(missing_ok=True)
