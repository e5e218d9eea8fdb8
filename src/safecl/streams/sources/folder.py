"""Read a folder of class folders.

``PATH/class/picture``, ``PATH/train|test/class/picture`` or, with domains, ``PATH[/train|test]/domain/class/picture``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from safecl.errors import SafeclError
from safecl.lines import warn_omitted
from safecl.streams.check import Rules, collect
from safecl.streams.collection import Collection
from safecl.streams.pictures.decode import EXTENSIONS
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import Found, as_text, printable, scan

TRAIN = ("train", "training")
TEST = ("test", "testing", "val", "valid", "validation")  # the first that exists is the test split


def read_folder(path: str | Path, *, protocol: str | None = None, **rules: Unpack[Rules]) -> Collection:
    """The pictures below ``path``; ``rules``: see ``collect``, which draws a test split if there is no test folder."""
    top = Path(path).expanduser()
    if not top.is_dir():
        raise SafeclError(f"There is no folder {printable(top)}; give the folder that holds the class folders.")
    train_at, test_at = split_folders(top)
    train = list(scan(train_at))
    test = list(scan(test_at)) if test_at else []
    here = printable(train_at)
    if not train:
        raise SafeclError(f"There is no picture in a class folder of {here}; expected {here}/CLASS/PICTURE.")
    if test_at and not test:
        raise SafeclError(f"There is no picture in a class folder of {printable(test_at)}; fill it or remove it.")
    by_domain = protocol in ("domain", "mixed") or (protocol is None and looks_like_domains(train))
    depth = 1 if by_domain else 0
    for found in train + test:
        if len(found.folders) <= depth:
            wanted = "DOMAIN/CLASS/PICTURE" if by_domain else "CLASS/PICTURE"
            raise SafeclError(
                f"The picture {printable(found.file.path)} is in no class folder; expected {here}/{wanted}."
            )
    warn_of_empty_folders(train_at, {f.folders[: depth + 1] for f in train}, depth)
    return collect(
        printable(top.resolve().name),
        labelled(train, depth, skippable=True),
        labelled(test, depth, skippable=True) if test_at else None,
        place=printable(top),
        train_domains=[f.folders[0] for f in train] if by_domain else None,
        test_domains=[f.folders[0] for f in test] if by_domain else None,
        split=f"the folders {train_at.name}/ and {test_at.name}/" if test_at else "",
        home=top,
        **rules,
    )


def labelled(found: Sequence[Found], depth: int, **options: Any) -> FilePictures:
    """Pictures of the classes that the folders at ``depth`` are."""
    return FilePictures([f.file for f in found], [f.folders[depth] for f in found], **options)


def split_folders(top: Path) -> tuple[Path, Path | None]:
    """The training folder and, where there is one, the test folder."""
    names = {entry.name.lower(): entry for entry in top.iterdir() if entry.is_dir()}
    train = next((names[name] for name in TRAIN if name in names), None)
    # Among other folders, one that holds no folders is a class: trains are photographed, too.
    alone = names.keys() <= {*TRAIN, *TEST}
    if train is None or not (alone or any(entry.is_dir() for entry in train.iterdir())):
        return top, None
    return train, next((names[name] for name in TEST if name in names), None)


def looks_like_domains(found: Sequence[Found]) -> bool:
    """Every picture is two folders deep and the inner names come back under several outer ones."""
    pairs = {f.folders for f in found}
    return all(len(pair) == 2 for pair in pairs) and len({inner for _, inner in pairs}) < len(pairs)


def warn_of_empty_folders(top: Path, filled: set[tuple[str, ...]], depth: int) -> None:
    """Say which class folders hold no picture, and which links are to nothing where a class folder should be."""
    empty = []
    for path in sorted(top.glob("/".join(["*"] * (depth + 1)))):
        inside = path.relative_to(top)
        ignored = any(part.startswith(".") or part == "__MACOSX" for part in inside.parts)
        broken = path.is_symlink() and not path.exists() and path.suffix.lower() not in EXTENSIONS
        if not ignored and tuple(map(as_text, inside.parts)) not in filled and (broken or path.is_dir()):
            empty.append(repr(printable(inside)))
    warn_omitted(empty, "class folder", f"as empty in {printable(top)}")
