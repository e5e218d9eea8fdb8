"""The Hugging Face hub, from which weights come: what of them is at hand, and fetching the rest.

Progress, mirrors (HF_ENDPOINT), retries from where a download broke off and timeouts
(HF_HUB_DOWNLOAD_TIMEOUT) are those of the hub's own client, without its log lines.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import huggingface_hub
import timm
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

from safecl.errors import Settable

WAIT = 4.0  # seconds for the first answer
FOLDER = "models--timm--"  # in the hub's cache, before the name of a model


class Address(NamedTuple):
    """Where the hub has weights, and the files that they may be in, the preferred one first."""

    repository: str
    revision: str | None
    files: tuple[str, ...]


def address(name: str) -> Address | None:
    """Of a timm model; None where the hub has none."""
    facts = timm.get_pretrained_cfg(name, allow_unregistered=True)
    if facts is None or not facts.hf_hub_id:
        return None
    repository, _, revision = facts.hf_hub_id.partition("@")
    pickled = facts.hf_hub_filename or "pytorch_model.bin"
    safe = pickled.replace("pytorch_model.bin", "model.safetensors")
    return Address(repository, revision or None, tuple(dict.fromkeys((safe, pickled))))


def cached_file(name: str) -> Path | None:
    """The file with the weights of a timm model, if the hub's cache has it."""
    place = address(name)
    if place is None:
        return None
    for file in place.files:
        found = huggingface_hub.try_to_load_from_cache(
            place.repository, file, revision=place.revision
        )
        if isinstance(found, str):
            return Path(found)
    return None


def cached() -> list[str]:
    """The timm models whose weights are in the hub's cache."""
    cache = Path(huggingface_hub.constants.HF_HUB_CACHE)
    names = (folder.name.removeprefix(FOLDER) for folder in sorted(cache.glob(f"{FOLDER}*")))
    return [name for name in names if cached_file(name) is not None]


def fetch(name: str) -> Path | None:
    """The file with the weights of a timm model, from the cache or else from the hub; None where
    the hub has none.
    """
    found = cached_file(name)
    place = address(name)
    if found is not None or place is None:
        return found
    try:
        check_hub(name)
        with quiet_hub():
            return _download(place)
    except Exception as error:  # of whichever client for HTTP this version of the hub has
        raise offline(name, error) from error


def _download(place: Address) -> Path:
    *preferred, last = place.files
    for file in preferred:
        with suppress(EntryNotFoundError):
            return _downloaded(place, file)
    return _downloaded(place, last)


def _downloaded(place: Address, file: str) -> Path:
    return Path(huggingface_hub.hf_hub_download(place.repository, file, revision=place.revision))


def offline(name: str, error: Exception) -> Settable:
    """What to say where weights are neither at hand nor to be had, because of ``error``."""
    reason = str(error) if type(error) is ConnectionError else type(error).__name__
    return Settable(
        "backbone.weights.offline",
        name=name,
        reason=reason,
        cached=", ".join(cached()) or "nothing",
        setting="backbone.weights=FILE",
    )


def check_hub(name: str) -> None:
    """Raise a ConnectionError if the weights of a timm model are neither cached nor to be had from
    the hub.
    """
    place = address(name)
    if place is None or cached_file(name) is not None:
        return
    url = huggingface_hub.hf_hub_url(place.repository, place.files[0], revision=place.revision)
    outcome = ["no answer"]

    def ask() -> None:
        try:
            with suppress(HfHubHTTPError):  # an answer: the download will say what is wrong
                huggingface_hub.get_hf_file_metadata(url, timeout=WAIT)
            outcome.append("")
        except Exception as error:
            outcome.append(type(error).__name__)

    # In a thread, since the look-up of a host name has no timeout.
    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(WAIT)
    if outcome[-1]:
        raise ConnectionError(outcome[-1])


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Meanwhile the client of the hub logs nothing."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
