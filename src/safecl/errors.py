"""The error a user can meet: one sentence that says what is wrong, where, and what to do."""

import difflib
from collections.abc import Iterable


class SafeclError(Exception):
    """Printed by the command line as it is, without a traceback; ``code``: its exit code."""

    code = 2


class NothingNew(SafeclError):
    """There is nothing to do, and nothing is wrong."""

    code = 0


class Busy(SafeclError):
    """Another process is at work there; later it may be free."""


class NotCorrectable(SafeclError):
    """What a method has made of labels that were wrong cannot be put right."""


class Stopped(Exception):
    """The run was asked to stop and has saved its place."""


def not_installed(error: ModuleNotFoundError) -> SafeclError:
    """For a package that is missing; few are enough for answers from an exported file."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "safecl"):
        raise error
    return SafeclError(f"This needs {package}, which is not installed here; 'pip install safecl' installs it.")


class UnknownName(SafeclError):
    """A name that is none of those known; ``near``: the one that may have been meant."""

    def __init__(self, sentence: str, near: str | None) -> None:
        super().__init__(sentence)
        self.near = near


def unknown(what: str, given: str, known: Iterable[str]) -> UnknownName:
    """The error for a name that is not one of ``known``; names the nearest right one."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    some = ", ".join(names[:20]) + (", …" if len(names) > 20 else ".")
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {some}"
    return UnknownName(f"There is no {what} {given!r}; {hint}", near[0] if near else None)
