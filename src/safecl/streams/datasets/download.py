"""Fetch published files: a file gets its name only when it has been verified."""

import http.client
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import md5_of
from safecl.streams.datasets.dataset import Archive, Dataset

SILENCE = 60.0  # seconds without a byte after which a server is given up
PIECE = 1 << 20  # bytes that are written at a time


def download(
    dataset: Dataset, folder: Path, say: Callable[[str], None] = lambda line: None
) -> Path:
    """Fetch what is open to software; gives the folder or the archive to prepare from."""
    fetchable = [archive for archive in dataset.archives if archive.url]
    if not fetchable:
        raise SafeclError("dataset.download.by-hand", title=dataset.title, fetch=dataset.fetch)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # two downloads would write to the same file
        for archive in fetchable:
            say(f"Fetching {archive.url}")
            fetch(archive, folder / archive.name)
    return folder if len(fetchable) > 1 else folder / fetchable[0].name


def fetch(archive: Archive, to: Path, silence: float = SILENCE) -> None:
    """Download to ``to``, unless it is there; ``silence``: seconds to wait for the next byte."""
    if to.exists():
        return
    url = str(archive.url)
    partial = to.with_name(f"{to.name}.partial")
    try:
        with urllib.request.urlopen(url, timeout=silence) as answer, open(partial, "wb") as file:
            if answer.headers.get_content_type() == "text/html":
                raise SafeclError("dataset.download.web-page", url=url)
            while piece := answer.read(PIECE):
                file.write(piece)
            length = int(answer.headers.get("Content-Length", file.tell()))
            if file.tell() < length:
                raise OSError(f"got only {file.tell()} out of {length} bytes")
        if archive.md5 and md5_of(partial) != archive.md5:
            raise SafeclError("dataset.download.checksum", url=url)
        os.replace(partial, to)
    except (OSError, http.client.HTTPException) as error:
        raise SafeclError("dataset.download.failed", url=url, error=error) from None
    finally:
        partial.unlink(missing_ok=True)
