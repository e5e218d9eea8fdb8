"""The Hugging Face hub, from which timm fetches weights: whether it can be reached, and without its log lines."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import huggingface_hub
import timm
from huggingface_hub.errors import HfHubHTTPError

WAIT = 4.0  # seconds for the first answer
FILES = ("model.safetensors", "pytorch_model.bin")  # where timm looks, in this order


def check_hub(name: str) -> None:
    """Raise a ConnectionError if the weights of a timm model are neither cached nor to be had from the hub."""
    facts = timm.get_pretrained_cfg(name, allow_unregistered=True)
    if facts is None or not facts.hf_hub_id:
        return
    repository, _, revision = facts.hf_hub_id.partition("@")
    files = (facts.hf_hub_filename,) if facts.hf_hub_filename else FILES
    for file in files:
        if isinstance(huggingface_hub.try_to_load_from_cache(repository, file, revision=revision or None), str):
            return
    url, outcome = huggingface_hub.hf_hub_url(repository, files[0], revision=revision or None), ["no answer"]

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
