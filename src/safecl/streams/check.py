"""Which pictures may come in: what is wrong with them is found before anything is learned."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

import numpy as np

from safecl.errors import SafeclError
from safecl.lines import counted, naming, warn_omitted
from safecl.streams.collection import Collection
from safecl.streams.labels import label_problems, sorted_classes
from safecl.streams.pictures.decode import UnreadableError
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File
from safecl.streams.pictures.images import Label, Pictures, Selection
from safecl.streams.pictures.load import readers
from safecl.streams.settings import Duplicates, Unreadable
from safecl.streams.stream import positions
from safecl.streams.stream import split as draw_split

TEST_FRACTION = 0.2
Refuse: TypeAlias = Callable[[SafeclError], None]
One: TypeAlias = tuple[Pictures, int]


def refuse(error: SafeclError) -> None:
    raise error


class Rules(TypedDict, total=False):
    """What every source passes on to ``collect``."""

    test_fraction: float
    split_seed: int
    unreadable: Unreadable | Literal["keep"]
    duplicates: Duplicates
    refuse: Refuse


@dataclass(frozen=True)
class Offered:
    """What a source has read. ``test``: None where it is to be drawn from the training pictures.

    ``place``: the data in messages, if not ``name``. ``classes``: in their natural order, where
    that is not the sorted one. ``split``: which one it is, in words.
    """

    name: str
    train: Pictures
    test: Pictures | None = None
    place: str = ""
    classes: Sequence[Label] = ()
    train_domains: Sequence[str] | None = None
    test_domains: Sequence[str] | None = None
    split: str = "the test pictures given"
    home: Path | None = None

    @property
    def where(self) -> str:
        return self.place or self.name


def collect(
    offered: Offered,
    *,
    test_fraction: float = TEST_FRACTION,
    split_seed: int = 0,
    unreadable: Unreadable | Literal["keep"] = "refuse",
    duplicates: Duplicates = "refuse",
    refuse: Refuse = refuse,
) -> Collection:
    """The pictures that may be used; ``refuse`` is given an error for what must not be,
    anything omitted is a warning.

    Without test pictures, ``test_fraction`` of every class (and domain) is drawn with
    ``split_seed``. ``unreadable``: whether files that cannot be opened are refused; skip decodes
    every picture to omit broken ones, and keep looks at none, for ``survey`` to read.
    ``duplicates``: whether one file in two classes is refused.
    """
    refuse_fraction(offered, test_fraction, refuse)
    refuse_names(offered, refuse)
    train = offered.train
    test = train.subset([]) if offered.test is None else offered.test
    keep = usable(train, unreadable, refuse)
    hold = usable(test, unreadable, refuse)
    refuse_none(offered, keep, hold)
    shown = {train.labels[i] for i in keep}
    refuse_untrained({test.labels[i] for i in hold} - shown, offered, refuse)
    lost = sorted({repr(str(label)) for label in train.labels if label not in shown})
    warn_omitted(lost, "class", f"from {offered.where}, with no picture that can be read")
    everything = [*((train, i) for i in keep), *((test, i) for i in hold)]
    groups = list(same_pictures([one for one in everything if is_whole_file(one)]))
    if duplicates == "refuse":
        refuse_two_classes(groups, refuse)
    learned = learned_test_files(train, groups, offered.where)
    hold = [i for i in hold if i not in learned]
    test_domains = offered.test_domains
    split = offered.split
    if offered.test is None:
        keep, hold = drawn(offered, keep, test_fraction, split_seed)
        test = train
        test_domains = offered.train_domains
        split = f"{test_fraction:.0%} of every class held out for testing, seed {split_seed}"
    domains = chosen(offered.train_domains, keep)
    return Collection(
        name=offered.name,
        train=train.subset(keep),
        test=test.subset(hold),
        classes=tuple(c for c in offered.classes or sorted_classes(shown) if c in shown),
        train_domains=domains,
        test_domains=chosen(test_domains, hold),
        domains=tuple(dict.fromkeys(domains or ())),
        split=split,
        home=offered.home,
    )


def chosen(domains: Sequence[str] | None, at: Sequence[int]) -> tuple[str, ...] | None:
    return None if domains is None else tuple(domains[i] for i in at)


def drawn(
    offered: Offered, keep: Sequence[int], fraction: float, seed: int
) -> tuple[list[int], list[int]]:
    """Of the positions to ``keep``: those to train on, and those held out for testing."""
    labels = offered.train.labels
    domains = offered.train_domains
    strata = [(None if domains is None else domains[i], labels[i]) for i in keep]
    first, second = draw_split(strata, fraction, np.random.default_rng([seed, 1]))
    return [keep[n] for n in first], [keep[n] for n in second]


# -- what is refused -------------------------------------------------------------------------------


def refuse_fraction(offered: Offered, fraction: float, refuse: Refuse) -> None:
    if not 0 <= fraction < 1:
        raise SafeclError("stream.test-fraction.range", fraction=fraction)
    if offered.test is not None and fraction not in (0, TEST_FRACTION):
        error = SafeclError("stream.test-fraction.idle", where=offered.where, fraction=fraction)
        refuse(error)


def refuse_names(offered: Offered, refuse: Refuse) -> None:
    """Classes and domains whose names are no text, or that a person would read as another's."""
    tested = [] if offered.test is None else offered.test.labels
    for error in label_problems([*offered.train.labels, *tested], offered.where):
        refuse(error)
    domains = [*(offered.train_domains or ()), *(offered.test_domains or ())]
    for error in label_problems(domains, offered.where, what="domain"):
        refuse(error)


def refuse_none(offered: Offered, keep: Sequence[int], hold: Sequence[int]) -> None:
    """Pictures of which none can be read."""
    for pictures, left, part in ((offered.train, keep, ""), (offered.test, hold, " test")):
        if pictures is not None and len(pictures) and not left:
            first = pictures.where(0)
            raise SafeclError(
                "stream.pictures.none-readable", part=part, where=offered.where, first=first
            )


def refuse_untrained(labels: set[Label], offered: Offered, refuse: Refuse) -> None:
    """Classes that are tested and never trained."""
    if labels:
        first = min(map(str, labels))
        refuse(SafeclError("stream.class.untrained", label=first, where=offered.where))


def refuse_two_classes(groups: Sequence[list[One]], refuse: Refuse) -> None:
    """The same file in two classes."""
    for (a, i), *others in groups:
        other = next(((b, j) for b, j in others if b.labels[j] != a.labels[i]), None)
        if other is None:
            continue
        first, second = (
            f"{pictures.where(at)} ({pictures.labels[at]})" for pictures, at in ((a, i), other)
        )
        way = "remove the wrong one, or set stream.duplicates=allow"
        refuse(SafeclError("pictures.two-classes", names=f"{first} and {second}", way=way))


# -- what is omitted -------------------------------------------------------------------------------


def usable(
    pictures: Pictures, unreadable: Unreadable | Literal["keep"], refuse: Refuse
) -> list[int]:
    """Positions of the pictures to use."""
    bad = broken(pictures) if unreadable == "skip" else {}
    if unreadable == "refuse":
        files = ((i, file_of(pictures, i)) for i in range(len(pictures)))
        bad = {i: file.problem for i, file in files if file is not None and file.problem}
        if bad:
            refuse(unreadable_pictures([((pictures, i), why) for i, why in bad.items()]))
    elif 0 < len(bad) < len(pictures):  # with none left, an error follows
        warn_omitted(
            [f"{pictures.where(i)} ({why})" for i, why in bad.items()], "picture", "as unreadable"
        )
    return [i for i in range(len(pictures)) if i not in bad]


def learned_test_files(train: Pictures, groups: Sequence[list[One]], place: str) -> set[int]:
    """Positions of test files that are training files as well."""
    overlap: dict[int, str] = {}
    for (a, i), *others in groups:
        if a is train:
            overlap |= {j: f"{b.where(j)} = {a.where(i)}" for b, j in others if b is not train}
    why = f"from the test of {place}, because the same picture is in training"
    warn_omitted(list(overlap.values()), "picture", why)
    return set(overlap)


# -- how it is found -------------------------------------------------------------------------------


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


def unreadable_pictures(bad: Sequence[tuple[One, str]]) -> SafeclError:
    """The error for pictures that cannot be read, and why."""
    origins = [origin(*one)[0] for one, _ in bad]
    skippable = any(
        isinstance(pictures, FilePictures) and pictures.skippable for pictures in origins
    )
    them = "it" if len(bad) == 1 else "them"
    hint = f", or set stream.unreadable=skip to omit {them}" if skippable else ""
    named = [(pictures.where(i), why) for (pictures, i), why in bad]
    names = naming(
        f"{where[:-1]}; {why})" if where.endswith(")") else f"{where} ({why})"
        for where, why in named
    )
    some = counted(len(bad), "picture", "pictures")
    return SafeclError("pictures.unreadable", pictures=some, names=names, them=them, hint=hint)


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


def is_whole_file(one: One) -> bool:
    """Whether a picture is a file in which nothing was found wrong when it was listed."""
    file = file_of(*one)
    return file is not None and not file.problem
