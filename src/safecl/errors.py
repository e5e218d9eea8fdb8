"""The error a user can meet: one sentence that says what is wrong, where, and what to do. A program
tells errors apart by their codes and fields.
"""

import difflib
from collections.abc import Iterable
from typing import Any

from safecl.sentences import SENTENCES


class SafeclError(Exception):
    """Printed by the command line as it is, without a traceback; ``exit_code``: its exit code.

    ``code``: which error it is, for good; ``fields``: what its sentence names. The sentence is that
    of the code in ``safecl.sentences``. Another package says ``package.says`` and a ``sentence``.
    """

    exit_code = 2

    def __init__(self, code: str, /, **fields: Any) -> None:
        self.code = code
        self.fields = fields
        super().__init__(SENTENCES[code].format(**fields))

    def with_fields(self, **fields: Any) -> "SafeclError":
        """The same error of other things."""
        return type(self)(self.code, **{**self.fields, **fields})

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[SafeclError], args: tuple[Any, ...], state: dict[str, Any]) -> SafeclError:
    """An error as another process has raised it."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class Settable(SafeclError):
    """Its sentence ends in a remedy: the ``setting`` that helps, as ``key=value``. The code with
    ``.bare`` behind it is that of the sentence without.
    """

    def at(self, option: str | None) -> SafeclError:
        """As a command says it that takes settings behind an ``option``; None: it takes none."""
        others = {key: value for key, value in self.fields.items() if key != "setting"}
        if option is None:
            return SafeclError(f"{self.code}.bare", **others)
        return self.with_fields(setting=f"{option} {self.fields['setting']}")


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
    return SafeclError("package.not-installed", package=package)


class UnknownName(SafeclError):
    """A name that is none of those known; the field ``near``: the one that may have been meant."""

    @property
    def near(self) -> str | None:
        near: str | None = self.fields["near"]
        return near


def unknown(what: str, given: str, known: Iterable[str], near: str | None = None) -> UnknownName:
    """The error for a name that is none of ``known``; it names ``near``, or the nearest right
    one.
    """
    names = sorted(known)
    nearest = [near] if near else difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    some = ", ".join(names[:20]) + (", …" if len(names) > 20 else ".")
    code = "name.unknown.near" if nearest else "name.unknown"
    meant = nearest[0] if nearest else None
    return UnknownName(code, what=what, given=given, known=some, near=meant)
