"""What other packages bring: methods, PETs, data sets, metrics and presets, found by their entry
points.

It is known by its name from the start and loaded when it is asked for, so that an installed package
costs nothing to those who do not name what it brings.
"""

import warnings
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Literal, TypeAlias, TypeVar

from safecl.errors import SafeclError

T = TypeVar("T")
Group: TypeAlias = Literal["methods", "pets", "datasets", "metrics", "presets"]
WORDS: dict[Group, str] = {
    "methods": "method",
    "pets": "PET",
    "datasets": "data set",
    "metrics": "metric",
    "presets": "preset",
}


class Catalog(Mapping[str, T]):
    """``own``, and what packages bring to a ``group`` (``safecl.methods``, …), by name.

    ``made``: from a name and what its entry point names to what stands here; it refuses what does
    not fit in a sentence. Names come without loading anything; ``items`` and ``values`` leave out
    what cannot be loaded, and say so once.
    """

    def __init__(
        self, group: Group, own: dict[str, T], made: Callable[[str, Any], T] = lambda _, it: it
    ) -> None:
        self.group: Group = group
        self.own = own
        self.made = made
        self._loaded: dict[str, T] = {}
        self._broken: set[str] = set()

    @property
    def foreign(self) -> Mapping[str, EntryPoint]:
        """The entry points that count."""
        return brought(self.group, tuple(self.own))

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.foreign

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.foreign

    def __len__(self) -> int:
        return len(self.own) + len(self.foreign)

    def __getitem__(self, name: str) -> T:
        if name in self.own:
            return self.own[name]
        if name not in self._loaded:
            self._loaded[name] = self.made(name, self.named(name))
        return self._loaded[name]

    def named(self, name: str) -> Any:
        """What the entry point of this name stands for, as the package has it."""
        return load(self.group, self.foreign[name])

    def loaded(self) -> dict[str, T]:
        """All that can be loaded; what cannot is said."""
        found = {}
        for name in self:
            try:
                found[name] = self[name]
            except SafeclError as error:
                if name not in self._broken:
                    self._broken.add(name)
                    warnings.warn(str(error), stacklevel=2)
        return found

    def items(self) -> ItemsView[str, T]:
        return self.loaded().items()

    def values(self) -> ValuesView[T]:
        return self.loaded().values()

    def package(self, name: str) -> str | None:
        """The package that brings it; None for our own."""
        return package_of(self.foreign[name]) if name in self.foreign else None

    def misfit(self, name: str, needed: str) -> SafeclError:
        """The error for what an entry point names and is not what is ``needed``."""
        entry = self.foreign[name]
        return SafeclError(
            "package.misfit",
            what=WORDS[self.group],
            name=name,
            package=package_of(entry),
            value=entry.value,
            needed=needed,
        )


def load(group: Group, entry: EntryPoint) -> Any:
    """What an entry point stands for."""
    try:
        return entry.load()
    except Exception as error:  # whatever somebody else's module does while it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        raise SafeclError(
            "package.broken",
            what=WORDS[group],
            name=entry.name,
            package=package_of(entry),
            reason=reason,
        ) from error


def package_of(entry: EntryPoint) -> str:
    """Name and version of what brings it."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module


def is_installed(package: str) -> bool:
    """Whether what ``package_of`` named is here, in whatever version."""
    try:
        version(package.partition(" ")[0])
    except PackageNotFoundError:
        return False
    return True


@cache
def brought(group: Group, own: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """The entry points of a group by name; one whose name is among our ``own``, or somebody else's
    too, does not count.
    """
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=f"safecl.{group}"):
        found.setdefault(entry.name, []).append(entry)
    clear = {}
    for name, entries in sorted(found.items()):
        packages = " and ".join(sorted(map(package_of, entries)))
        if name in own:
            warnings.warn(
                f"{packages} brings a {WORDS[group]} {name!r}, which safecl has itself; safecl's is"
                " used, and the other needs another name.",
                stacklevel=2,
            )
        elif len(entries) > 1:
            warnings.warn(
                f"{packages} each bring a {WORDS[group]} {name!r}, so none is used; uninstall all"
                " but one.",
                stacklevel=2,
            )
        else:
            clear[name] = entries[0]
    return clear
