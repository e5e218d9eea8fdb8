"""Fetch published files: a file gets its name only when it has been verified."""

import os
import urllib.request
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import md5_of
from safecl.streams.datasets.dataset import Archive, Dataset


def download(dataset: Dataset, folder: Path, say: Callable[[str], None] = lambda line: None) -> Path:
    """Fetch what is open to software; gives the folder or the archive to prepare from."""
    fetchable = [archive for archive in dataset.archives if archive.url]
    if not fetchable:
        raise SafeclError(f"{dataset.title} needs a person to fetch it: {dataset.fetch}")
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # two downloads would write to the same file
        for archive in fetchable:
            say(f"Fetching {archive.url}")
            fetch(archive, folder / archive.name)
    return folder if len(fetchable) > 1 else folder / fetchable[0].name


def fetch(archive: Archive, to: Path) -> None:
    """Download to ``to``, unless it is there."""
    if to.exists():
        return
    url, partial = str(archive.url), to.with_name(f"{to.name}.partial")
    try:
        _, headers = urllib.request.urlretrieve(url, partial)
        if headers.get_content_type() == "text/html":
            raise SafeclError(f"{url} answers with a web page and not with the file; fetch it by hand.")
        if archive.md5 and md5_of(partial) != archive.md5:
            raise SafeclError(f"{url} is not the published file (its md5 differs); try again or fetch it by hand.")
        os.replace(partial, to)
    except OSError as error:
        raise SafeclError(f"{url} cannot be fetched ({error}); run the command again, or fetch it by hand.") from None
    finally:
        partial.unlink(missing_ok=True)
