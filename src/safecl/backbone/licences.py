"""The licence of a backbone's weights, and what it asks of who makes a model on them."""

from pathlib import Path

import timm

from safecl.backbone.curated import row_of
from safecl.backbone.load import metadata
from safecl.backbone.settings import BackboneSettings

NOT_STATED = "not stated"
FREE = ("apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", NOT_STATED)
MAX_LENGTH = 200  # of what a file, which may be anybody's, says of itself
NO_COMMERCE = ("cc-by-nc", "noncommercial", "research", "amlr", "seer")  # parts of their names


def licence_of(settings: BackboneSettings) -> str:
    """Of the weights: as timm says it, else as the curated table does; of a file as its metadata
    say it.
    """
    stated: str | None = None
    if settings.weights is None:
        facts = timm.get_pretrained_cfg(settings.name, allow_unregistered=True)
        row = row_of(settings.name)
        stated = (facts and facts.license) or (row and row.licence)
    elif (file := Path(settings.weights).expanduser()).is_file():
        said = metadata(file)
        stated = said.get("licence") or said.get("license")
    return NOT_STATED if stated in (None, "", "unknown") else str(stated)[:MAX_LENGTH]


def terms(name: str, licence: str) -> str | None:
    """A sentence on a licence that is not free for every use."""
    if licence in FREE:
        return None
    of_weights = f"The licence of the weights of {name} ({licence})"
    if any(part in licence for part in NO_COMMERCE):
        return f"{of_weights} forbids commercial use, of a model on them as well."
    return f"{of_weights} has terms of its own: read them before commercial use."
