"""Check a collection: counts, unreadable pictures, pictures in training and test or in two classes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.streams.collection import Collection
from safecl.streams.datasets.dataset import SEEDED, Dataset
from safecl.streams.pictures.clean import naming, same_content, unreadable_files
from safecl.streams.pictures.files import File, FilePictures
from safecl.streams.pictures.images import ArrayPictures, Label, Pictures, Wrapped
from safecl.streams.pictures.load import readers


@dataclass
class Report:
    """``warnings`` are worth knowing; ``problems`` make numbers wrong or stop a run."""

    facts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def check(
    data: Collection,
    dataset: Dataset | None = None,
    split: str | None = None,
    workers: int | None = None,
    duplicates_allowed: bool = False,
) -> Report:
    """Read everything once. ``dataset`` and ``split``: whose published counts to compare with.

    ``duplicates_allowed``: one picture in two classes is a warning and not a problem.
    """
    report = Report()
    report.facts.append(f"{len(data.train)} training and {len(data.test)} test pictures of {len(data.classes)} classes")
    if data.split:
        report.facts.append(f"split: {data.split}")
    if dataset is not None:
        report.warnings.extend(wrong_counts(data, dataset, split))
    counts = dict.fromkeys(data.classes, 0)
    for label in data.train.labels:
        counts[label] += 1
    lonely = [c for c, n in counts.items() if n == 1]
    if lonely:
        report.warnings.append(f"{_classes(lonely)} a single training picture: {naming(map(repr, lonely))}")
    tested = set(data.test.labels)
    untested = [c for c in data.classes if c not in tested]
    if untested:
        report.warnings.append(f"{_classes(untested)} no test picture: {naming(map(repr, untested))}")
    report.problems.extend(unreadable((data.train, data.test), workers))
    both, mislabelled = duplicates(data.train, data.test)
    report.problems.extend(both)
    (report.warnings if duplicates_allowed else report.problems).extend(mislabelled)
    return report


def wrong_counts(data: Collection, dataset: Dataset, split: str | None = None) -> Iterator[str]:
    """Each difference from the published counts, in one sentence."""
    split = split or next(iter(dataset.counts))
    train, test = dataset.counts.get(split, next(iter(dataset.counts.values())))
    if len(data.classes) != dataset.classes:
        yield f"{dataset.title} has {dataset.classes} classes; here are {len(data.classes)}"
    here = len(data.train), len(data.test)
    if here != (train, test) and (split != SEEDED or sum(here) != train + test):  # a drawn split depends on the classes
        yield (
            f"{dataset.title} ({split} split) has {train} training and {test} test pictures; here are "
            f"{len(data.train)} and {len(data.test)}"
        )


def _classes(labels: Sequence[Label]) -> str:
    return f"{counted(len(labels), 'class', 'classes')} {'has' if len(labels) == 1 else 'have'}"


def unreadable(parts: Sequence[Pictures], workers: int | None) -> Iterator[str]:
    """One sentence on all pictures that cannot be decoded; none where there is none."""
    everything = [(pictures, i) for pictures in parts for i in range(len(pictures))]

    def error_of(one: tuple[Pictures, int]) -> str | None:
        try:
            one[0].decode(one[1])
        except SafeclError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(workers or readers()) as pool:
        errors = list(pool.map(error_of, everything, chunksize=64))
    bad = [(pictures.where(i), error) for (pictures, i), error in zip(everything, errors, strict=True) if error]
    if bad:
        skippable = any("stream.unreadable=skip" in error for _, error in bad)
        yield unreadable_files([(where, reason(where, error)) for where, error in bad], skippable)


def reason(where: str, error: str) -> str:
    """Why, out of "The picture X cannot be read (it is not a picture); …"."""
    clause = error.removeprefix(f"The picture {where} ").partition(";")[0].removeprefix("cannot be read")
    return clause.strip(" :.").removeprefix("(").removesuffix(")").removeprefix("is ")


def duplicates(train: Pictures, test: Pictures) -> tuple[list[str], list[str]]:
    """Sentences on pictures with the same bytes in training and test, and on those in two classes."""
    everything = [(train, i) for i in range(len(train))] + [(test, i) for i in range(len(test))]
    both, mislabelled = [], []
    for group in groups(everything):
        members = [everything[g] for g in group]
        if len({pictures is train for pictures, _ in members}) > 1:
            both.append(members)
        if len({pictures.labels[i] for pictures, i in members}) > 1:
            mislabelled.append(members)

    def said(found: Sequence[Sequence[tuple[Pictures, int]]], what: str) -> list[str]:
        names = [" = ".join(pictures.where(i) for pictures, i in members) for members in found]
        return [f"{counted(len(found), 'picture is', 'pictures are')} {what}: {naming(names)}"] if found else []

    return said(both, "in training and in test"), said(mislabelled, "in more than one class")


def groups(everything: Sequence[tuple[Pictures, int]]) -> Iterator[list[int]]:
    files = [file_of(pictures, i) for pictures, i in everything]
    if all(file is not None for file in files):
        yield from same_content([file for file in files if file is not None])
        return
    found: dict[bytes, list[int]] = {}
    for position, (pictures, i) in enumerate(everything):
        found.setdefault(np.asarray(content(pictures, i)).tobytes(), []).append(position)
    yield from (group for group in found.values() if len(group) > 1)


def file_of(pictures: Pictures, index: int) -> File | None:
    if isinstance(pictures, Wrapped):
        return file_of(pictures.inner, pictures.at(index))
    return pictures.files[index] if isinstance(pictures, FilePictures) else None


def content(pictures: Pictures, index: int) -> np.ndarray:
    if isinstance(pictures, ArrayPictures):
        return np.asarray(pictures.arrays[index])
    return np.asarray(pictures.decode(index))
