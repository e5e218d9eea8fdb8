"""Published data sets as torchvision reads them.

Sets of files are read once, while they are prepared: torchvision's reader says which file is of
which class and split, and the files are laid out as ``train|test/class/picture`` like any other.
Sets of arrays stay as they are published and are read whenever they are opened.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.plans import DRAWN, OFFICIAL, Plan, drawn_moves, processed
from safecl.streams.pictures.kinds import hidden

if TYPE_CHECKING:
    from safecl.streams.collection import Collection


class Files(NamedTuple):
    """A reader of torchvision whose pictures are files.

    ``folder``: where it looks below its root. ``tops``: the first parts of the paths in the
    archives that lie there. ``train``, ``test``: its splits; with none for testing, one is drawn.
    ``digits``: of a class's number, which names it; its name in the archives with 0.
    """

    reader: str
    folder: str
    tops: tuple[str, ...]
    train: tuple[str, ...]
    test: str | None = "test"
    digits: int = 0
    lowest: int = 0  # the number of the first class in the archives

    def __call__(self, sources: Sequence[Source]) -> Plan:
        """The plan of a data set, by the lists that lie in ``sources``."""
        with tempfile.TemporaryDirectory() as root:
            place = Path(root, self.folder)
            members = self._linked(sources, place)
            learned = [pair for split in self.train for pair in self._read(root, split, sources)]
            held = self._read(root, self.test, sources) if self.test else []
        labels = dict(learned + held)
        names = {file: f"{label}/{PurePosixPath(file).name}" for file, label in labels.items()}
        if missing := sorted(file for file in names if file not in members):
            raise SafeclError("dataset.source.no-picture", path=sources[0].path, name=missing[0])
        tested = {file for file, _ in held}
        if self.test is None:
            places = drawn_moves(names.values())
            to = {file: places[name] for file, name in names.items()}
        else:
            to = {f: f"{'test' if f in tested else 'train'}/{name}" for f, name in names.items()}
        moves: dict[int, dict[str, str]] = {i: {} for i in range(len(sources))}
        for file, target in to.items():
            number, name = members[file]
            moves[number][name] = target
        split = OFFICIAL if self.test else DRAWN
        return Plan(split, [(source, moves[i]) for i, source in enumerate(sources)])

    def _linked(self, sources: Sequence[Source], place: Path) -> dict[str, tuple[int, str]]:
        """Links below ``place`` to all files where the reader looks for them; gives the source and
        the name of each.
        """
        members: dict[str, tuple[int, str]] = {}
        made = {place}
        place.mkdir(parents=True)
        for number, source in enumerate(sources):
            for name in source.names:
                parts = PurePosixPath(name).parts
                start = next((i for i, part in enumerate(parts) if part in self.tops), None)
                if start is None or hidden(*parts):
                    continue
                link = place.joinpath(*parts[start:])
                if link.parent not in made:
                    link.parent.mkdir(parents=True, exist_ok=True)
                    made.add(link.parent)
                file = link.relative_to(place).as_posix()
                if file not in members:
                    os.symlink((source.folder / name).absolute(), link)
                    members[file] = (number, name)
        return members

    def _read(self, root: str, split: str, sources: Sequence[Source]) -> list[tuple[str, str]]:
        """Each file of a split, by its path below the folder, and its class."""
        from torchvision import datasets

        options = {"split": split} if split != "all" else {}
        try:
            found = getattr(datasets, self.reader)(root, **options)
        except Exception as error:  # readers of lists raise almost anything on broken ones
            raise SafeclError(
                "dataset.source.not-published",
                path=sources[0].path,
                reader=self.reader,
                reason=" ".join(str(error).split()).rstrip(".") or type(error).__name__,
            ) from None
        place = Path(root, self.folder)
        return [
            (Path(file).relative_to(place).as_posix(), self._label(found, int(number)))
            for file, number in samples(found)
        ]

    def _label(self, found: Any, number: int) -> str:
        """The class's folder: no name holds a slash."""
        if self.digits:
            return f"{number + self.lowest:0{self.digits}d}"
        return str(found.classes[number]).replace("/", "-")


def samples(found: Any) -> list[tuple[str, int]]:
    """The files of a torchvision data set and the numbers of their classes, without opening a
    picture.
    """
    for name in ("samples", "_samples"):
        if hasattr(found, name):
            return [(os.fspath(file), number) for file, number in getattr(found, name)]
    files = getattr(found, "_image_files", None) or found._images
    return list(zip(map(os.fspath, files), found._labels, strict=True))


def cars(sources: Sequence[Source]) -> Plan:
    """The official devkit and pictures, or a mirror with folders ``train/CLASS`` and
    ``test/CLASS``.
    """
    official = any(PurePosixPath(name).name == "cars_meta.mat" for s in sources for name in s.names)
    return CARS(sources) if official else Plan(OFFICIAL, processed(sources).moves)


FLOWERS = Files(
    "Flowers102",
    "flowers-102",
    ("jpg", "imagelabels.mat", "setid.mat"),
    ("train", "val"),
    digits=3,
    lowest=1,
)
PETS = Files("OxfordIIITPet", "oxford-iiit-pet", ("images", "annotations"), ("trainval",))
FOOD = Files("Food101", "food-101", ("images", "meta"), ("train",))
CARS = Files(
    "StanfordCars",
    "stanford_cars",
    ("devkit", "cars_train", "cars_test", "cars_test_annos_withlabels.mat"),
    ("train",),
)
AIRCRAFT = Files("FGVCAircraft", "fgvc-aircraft-2013b", ("data",), ("trainval",))
TEXTURES = Files("DTD", "dtd/dtd", ("images", "labels"), ("train", "val"))
EUROSAT = Files("EuroSAT", "eurosat", ("2750",), ("all",), None)
SIGNS = Files("GTSRB", "gtsrb", ("GTSRB", "GT-final_test.csv"), ("train",), digits=2)


class Arrays(NamedTuple):
    """A reader of torchvision whose pictures are arrays in a few files.

    ``files``: what it needs. ``within``: the prepared folder is where it looks below its root, not
    its root. ``splits``: its words for training and test. ``channels_first``: (N, 3, H, W).
    ``classes``: their names, where it has none.
    """

    name: str
    reader: str
    files: tuple[str, ...]
    within: bool
    splits: tuple[dict[str, Any], dict[str, Any]]
    channels_first: bool = False
    classes: tuple[str, ...] = ()

    def plan(self, sources: Sequence[Source]) -> Plan:
        """Every file under its own name."""
        moves = [
            {name: PurePosixPath(name).name for name in source.names if self._needed(name)}
            for source in sources
        ]
        there = {to for found in moves for to in found.values()}
        if missing := [file for file in self.files if file not in there]:
            raise SafeclError(
                "dataset.files.lacking",
                path=sources[0].path,
                name=self.reader,
                missing=", ".join(missing),
            )
        return Plan(OFFICIAL, list(zip(sources, moves, strict=True)))

    def _needed(self, name: str) -> bool:
        return PurePosixPath(name).name in self.files

    def read(self, place: Path) -> "Collection":
        """Classes are numbered as torchvision does and labelled by their names; it opens no file of
        another md5.
        """
        from torchvision import datasets

        from safecl.streams.collection import Collection
        from safecl.streams.pictures.images import ArrayPictures

        reader: Callable[..., Any] = getattr(datasets, self.reader)
        root = place.parent if self.within else place
        try:
            parts = [reader(root, **options) for options in self.splits]
        except (OSError, RuntimeError):
            raise SafeclError("dataset.files.not-published", place=place, name=self.name) from None
        names = [str(one) for one in self.classes or parts[0].classes]
        train, test = (
            ArrayPictures(self._pixels(part.data), [names[int(i)] for i in labels_of(part)])
            for part in parts
        )
        return Collection(self.name, train, test, tuple(names), home=place)

    def _pixels(self, data: np.ndarray) -> np.ndarray:
        """uint8 (N, H, W, 3)."""
        return np.ascontiguousarray(data.transpose(0, 2, 3, 1) if self.channels_first else data)


def labels_of(part: Any) -> Sequence[int]:
    found: Sequence[int] = getattr(part, "targets", None) or part.labels
    return found


TRAIN_OR_TEST = ({"train": True}, {"train": False})
BY_SPLIT = ({"split": "train"}, {"split": "test"})
CIFAR10_FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")
CIFAR10 = Arrays("cifar10", "CIFAR10", CIFAR10_FILES, True, TRAIN_OR_TEST)
CIFAR100 = Arrays("cifar100", "CIFAR100", ("train", "test", "meta"), True, TRAIN_OR_TEST)
SVHN = Arrays(
    "svhn",
    "SVHN",
    ("train_32x32.mat", "test_32x32.mat"),
    False,
    BY_SPLIT,
    channels_first=True,
    classes=tuple("0123456789"),
)
STL10_FILES = (
    *(f"{part}_{kind}.bin" for part in ("train", "test") for kind in ("X", "y")),
    *("unlabeled_X.bin", "class_names.txt", "fold_indices.txt"),
)
STL10 = Arrays("stl10", "STL10", STL10_FILES, True, BY_SPLIT, channels_first=True)
