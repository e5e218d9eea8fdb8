"""Output in any encoding."""

import codecs
import sys

from safecl.lines import PLAIN


def accept_any_text() -> None:
    """From now on a character that the output's encoding lacks is replaced, and never an error."""
    codecs.register_error("safecl.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="safecl.plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace what cannot be encoded by something like it, or by question marks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in missing), error.end
