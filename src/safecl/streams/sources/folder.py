"""Read a folder of class folders, or of tar shards of them.

``PATH/class/picture``, ``PATH/train|test/class/picture`` or, with domains,
``PATH[/train|test]/domain/class/picture``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from safecl.lines import warn_omitted
from safecl.streams.check import Offered, Rules, collect
from safecl.streams.collection import Collection
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import Found, Only, as_text, class_folders, printable
from safecl.streams.pictures.kinds import EXTENSIONS, hidden


def read_folder(
    path: str | Path,
    *,
    protocol: str | None = None,
    only: Only | None = None,
    **rules: Unpack[Rules],
) -> Collection:
    """The pictures below ``path``; ``only``: see ``class_folders``.

    ``rules``: see ``collect``, which draws a test split if there is no test folder.
    """
    top = Path(path).expanduser()
    train_at, test_at, train, test, depth = class_folders(top, protocol, only)
    by_domain = depth == 1
    warn_of_empty_folders(train_at, {f.folders[: depth + 1] for f in train}, depth)
    offered = Offered(
        printable(top.resolve().name),
        labelled(train, depth, skippable=True),
        labelled(test, depth, skippable=True) if test_at else None,
        place=printable(top),
        train_domains=[f.folders[0] for f in train] if by_domain else None,
        test_domains=[f.folders[0] for f in test] if by_domain else None,
        split=f"the folders {train_at.name}/ and {test_at.name}/" if test_at else "",
        home=top if top.is_dir() else top.parent,
    )
    return collect(offered, **rules)


def labelled(found: Sequence[Found], depth: int, **options: Any) -> FilePictures:
    """Pictures of the classes that the folders at ``depth`` are."""
    return FilePictures([f.file for f in found], [f.folders[depth] for f in found], **options)


def warn_of_empty_folders(top: Path, filled: set[tuple[str, ...]], depth: int) -> None:
    """Say which class folders hold no picture, and which links are to nothing where a class folder
    should be.
    """
    empty = []
    for path in sorted(top.glob("/".join(["*"] * (depth + 1)))):
        inside = path.relative_to(top)
        broken = path.is_symlink() and not path.exists() and path.suffix.lower() not in EXTENSIONS
        if (
            not hidden(*inside.parts)
            and tuple(map(as_text, inside.parts)) not in filled
            and (broken or path.is_dir())
        ):
            empty.append(repr(printable(inside)))
    warn_omitted(empty, "class folder", f"as empty in {printable(top)}")
