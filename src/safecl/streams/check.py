"""Which pictures may come in: what is wrong with them is found before anything is learned."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

import numpy as np

from safecl.errors import SafeclError
from safecl.lines import counted, naming, warn_omitted
from safecl.streams.collection import Collection
from safecl.streams.datasets.dataset import Dataset
from safecl.streams.labels import label_problems, sorted_classes
from safecl.streams.pictures.decode import UnreadableError
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.images import Label, Pictures, Selection
from safecl.streams.pictures.load import readers
from safecl.streams.settings import Duplicates, Unreadable
from safecl.streams.stream import positions
from safecl.streams.stream import split as draw_split

Refuse: TypeAlias = Callable[[str], None]
One: TypeAlias = tuple[Pictures, int]


def refuse(sentence: str) -> None:
    raise SafeclError(sentence)


class Rules(TypedDict, total=False):
    """What every source passes on to ``collect``."""

    test_fraction: float
    split_seed: int
    unreadable: Unreadable | Literal["keep"]
    duplicates: Duplicates
    refuse: Refuse


def collect(
    name: str,
    train: Pictures,
    test: Pictures | None = None,
    *,
    place: str = "",
    classes: Sequence[Label] = (),
    train_domains: Sequence[str] | None = None,
    test_domains: Sequence[str] | None = None,
    split: str = "the test pictures given",
    home: Path | None = None,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    unreadable: Unreadable | Literal["keep"] = "refuse",
    duplicates: Duplicates = "refuse",
    refuse: Refuse = refuse,
) -> Collection:
    """The pictures that may be used; ``refuse`` is given a sentence on what must not be, anything omitted is a warning.

    ``place``: the data in messages. ``classes``: in their natural order, where that is not the sorted one. Without
    ``test``, ``test_fraction`` of every class (and domain) is drawn with ``split_seed``. ``unreadable``: whether files
    that cannot be opened are refused; skip decodes every picture to omit broken ones, and keep looks at none, for
    ``check`` to read. ``duplicates``: whether one file in two classes is refused.
    """
    place = place or name
    if not 0 <= test_fraction < 1:
        raise SafeclError(f"stream.test_fraction must be at least 0 and below 1, not {test_fraction}.")
    if test is not None and test_fraction not in (0, 0.2):
        refuse(f"{place} has test pictures of its own, so stream.test_fraction={test_fraction} means nothing; omit it.")
    given = train.subset([]) if test is None else test
    for sentence in label_problems([*train.labels, *given.labels], place):
        refuse(sentence)
    keep, hold = (usable(pictures, unreadable, refuse) for pictures in (train, given))
    for pictures, kept, part in ((train, keep, ""), (given, hold, " test")):
        if len(pictures) and not kept:
            raise SafeclError(f"No{part} picture of {place} can be read; the first is {pictures.where(0)}.")
    shown = {train.labels[i] for i in keep}
    missing = sorted({str(given.labels[i]) for i in hold if given.labels[i] not in shown})
    if missing:
        refuse(f"The class {missing[0]!r} of {place} has test pictures but no training picture.")
    lost = sorted({repr(str(label)) for label in train.labels if label not in shown})
    warn_omitted(lost, "class", f"from {place}, with no picture that can be read")
    everything = [*((train, i) for i in keep), *((given, i) for i in hold)]
    learned = learned_test_files(train, everything, place, duplicates, refuse)
    hold = [i for i in hold if i not in learned]
    if test is None:
        strata = [(None if train_domains is None else train_domains[i], train.labels[i]) for i in keep]
        first, second = draw_split(strata, test_fraction, np.random.default_rng([split_seed, 1]))
        given, test_domains = train, train_domains
        keep, hold = [keep[n] for n in first], [keep[n] for n in second]
        split = f"{test_fraction:.0%} of every class held out for testing, seed {split_seed}"
    domains = None if train_domains is None else tuple(train_domains[i] for i in keep)
    known = tuple(label for label in classes or sorted_classes(shown) if label in shown)
    tested = None if test_domains is None else tuple(test_domains[i] for i in hold)
    order = tuple(dict.fromkeys(domains or ()))
    return Collection(name, train.subset(keep), given.subset(hold), known, domains, tested, order, split, home)


def usable(pictures: Pictures, unreadable: Unreadable | Literal["keep"], refuse: Refuse) -> list[int]:
    """Positions of the pictures to use."""
    bad = broken(pictures) if unreadable == "skip" else {}
    if unreadable == "refuse":
        files = ((i, file_of(pictures, i)) for i in range(len(pictures)))
        bad = {i: file.problem for i, file in files if file is not None and file.problem}
        if bad:
            refuse(f"{unreadable_pictures([((pictures, i), why) for i, why in bad.items()])}.")
    elif 0 < len(bad) < len(pictures):  # with none left, an error follows
        warn_omitted([f"{pictures.where(i)} ({why})" for i, why in bad.items()], "picture", "as unreadable")
    return [i for i in range(len(pictures)) if i not in bad]


def learned_test_files(
    train: Pictures, everything: Sequence[One], place: str, duplicates: Duplicates, refuse: Refuse
) -> set[int]:
    """Positions of test files that are training files as well; a file in two classes is refused."""
    overlap: dict[int, str] = {}
    files = [one for one in everything if (file := file_of(*one)) is not None and not file.problem]
    for (a, i), *others in same_pictures(files):
        other = next(((b, j) for b, j in others if b.labels[j] != a.labels[i]), None)
        if duplicates == "refuse" and other is not None:
            first, second = (f"{pictures.where(at)} ({pictures.labels[at]})" for pictures, at in ((a, i), other))
            way = "remove the wrong one, or set stream.duplicates=allow"
            refuse(f"The same picture is in two classes: {first} and {second}; {way}.")
        if a is train:
            overlap |= {j: f"{b.where(j)} = {a.where(i)}" for b, j in others if b is not train}
    why = f"from the test of {place}, because the same picture is in training"
    warn_omitted(list(overlap.values()), "picture", why)
    return set(overlap)


@dataclass
class Report:
    """``warnings`` are worth knowing; ``problems`` make numbers wrong or stop a run."""

    facts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def check(
    data: Collection, dataset: Dataset | None = None, split: str | None = None, duplicates_allowed: bool = False
) -> Report:
    """Read everything once. ``dataset`` and ``split``: whose published counts to compare with."""
    report = Report()
    report.facts.append(f"{len(data.train)} training and {len(data.test)} test pictures of {len(data.classes)} classes")
    if data.split:
        report.facts.append(f"split: {data.split}")
    if dataset is not None:
        report.warnings.extend(wrong_counts(data, dataset, split))
    counts = Counter(data.train.labels)
    tested = set(data.test.labels)
    for what, labels in (
        ("a single training picture", [label for label in data.classes if counts[label] == 1]),
        ("no test picture", [label for label in data.classes if label not in tested]),
    ):
        if labels:
            have = counted(len(labels), "class has", "classes have")
            report.warnings.append(f"{have} {what}: {naming(map(repr, labels))}")
    parts = (data.train, data.test)
    bad = {(pictures, i): why for pictures in parts for i, why in broken(pictures).items()}
    if bad:
        report.problems.append(unreadable_pictures(list(bad.items())))
    everything = [(pictures, i) for pictures in parts for i in range(len(pictures))]
    groups = list(same_pictures([one for one in everything if one not in bad]))
    mislabelled = report.warnings if duplicates_allowed else report.problems
    for to, what, found in (
        (report.problems, "in training and in test", [g for g in groups if len({p is data.train for p, _ in g}) > 1]),
        (mislabelled, "in more than one class", [g for g in groups if len({p.labels[i] for p, i in g}) > 1]),
    ):
        if found:
            names = naming(" = ".join(pictures.where(i) for pictures, i in group) for group in found)
            to.append(f"{counted(len(found), 'picture is', 'pictures are')} {what}: {names}")
    return report


def wrong_counts(data: Collection, dataset: Dataset, split: str | None = None) -> Iterator[str]:
    """Each difference from the published counts, in one sentence."""
    split = split or next(iter(dataset.counts))
    train, test = dataset.counts.get(split, next(iter(dataset.counts.values())))
    if len(data.classes) != dataset.classes:
        yield f"{dataset.title} has {dataset.classes} classes; here are {len(data.classes)}"
    here = len(data.train), len(data.test)
    if here != (train, test):
        known = f"{dataset.title} ({split} split) has {train} training and {test} test pictures"
        yield f"{known}; here are {len(data.train)} and {len(data.test)}"


def broken(pictures: Pictures) -> dict[int, str]:
    """Why pictures cannot be read, by position; every one is decoded."""

    def reason(index: int) -> str:
        try:
            pictures.reduced(index, 1)
        except UnreadableError as error:
            return error.reason
        return ""

    with ThreadPoolExecutor(readers()) as pool:
        return {i: why for i, why in enumerate(pool.map(reason, range(len(pictures)))) if why}


def unreadable_pictures(bad: Sequence[tuple[One, str]]) -> str:
    """A sentence on pictures that cannot be read, and why."""
    origins = [origin(*one)[0] for one, _ in bad]
    skippable = any(isinstance(pictures, FilePictures) and pictures.skippable for pictures in origins)
    them = "it" if len(bad) == 1 else "them"
    hint = f", or set stream.unreadable=skip to omit {them}" if skippable else ""
    named = [(pictures.where(i), why) for (pictures, i), why in bad]
    names = naming(f"{where[:-1]}; {why})" if where.endswith(")") else f"{where} ({why})" for where, why in named)
    return f"{counted(len(bad), 'picture', 'pictures')} cannot be read: {names}; remove or replace {them}{hint}"


def same_pictures(everything: Sequence[One]) -> Iterable[list[One]]:
    """Groups of pictures with the same content; of files, only those of one size are read."""
    groups: Iterable[list[One]] = [list(everything)]
    for key in (lambda one: getattr(file_of(*one), "size", -1), lambda one: one[0].digest(one[1])):
        cut = [(group, where) for group in groups for where in positions(map(key, group)).values()]
        groups = [[group[i] for i in where] for group, where in cut if len(where) > 1]
    return groups


def origin(pictures: Pictures, index: int) -> One:
    """The collection that reads a picture itself, and its position there."""
    while isinstance(pictures, Selection):
        pictures, index = pictures.find(index)
    return pictures, index


def file_of(pictures: Pictures, index: int) -> File | None:
    pictures, index = origin(pictures, index)
    return pictures.files[index] if isinstance(pictures, FilePictures) else None
