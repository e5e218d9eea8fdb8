"""What is known of data once it has been read from end to end: ``safecl data check``."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from safecl.lines import counted, naming
from safecl.streams.check import One, broken, same_pictures, unreadable_pictures
from safecl.streams.collection import Collection
from safecl.streams.datasets.dataset import Dataset
from safecl.streams.pictures.images import Label


@dataclass
class Report:
    """``warnings`` are worth knowing; ``problems`` make numbers wrong or stop a run."""

    facts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def survey(
    data: Collection,
    dataset: Dataset | None = None,
    split: str | None = None,
    duplicates_allowed: bool = False,
) -> Report:
    """Read everything once. ``dataset`` and ``split``: whose published counts to compare with."""
    report = Report()
    report.facts.extend(size(data))
    if dataset is not None:
        report.warnings.extend(wrong_counts(data, dataset, split))
    report.warnings.extend(small_classes(data))
    parts = (data.train, data.test)
    bad = {(pictures, i): why for pictures in parts for i, why in broken(pictures).items()}
    if bad:
        report.problems.append(str(unreadable_pictures(list(bad.items()))).rstrip("."))
    everything = [(pictures, i) for pictures in parts for i in range(len(pictures))]
    groups = list(same_pictures([one for one in everything if one not in bad]))

    def both(one: One) -> bool:
        return one[0] is data.train

    def label(one: One) -> Label:
        return one[0].labels[one[1]]

    report.problems.extend(shared(groups, both, "in training and in test"))
    mislabelled = report.warnings if duplicates_allowed else report.problems
    mislabelled.extend(shared(groups, label, "in more than one class"))
    return report


def size(data: Collection) -> Iterator[str]:
    pictures = f"{len(data.train)} training and {len(data.test)} test pictures"
    yield f"{pictures} of {len(data.classes)} classes"
    if data.split:
        yield f"split: {data.split}"


def small_classes(data: Collection) -> Iterator[str]:
    """Classes with too few pictures to train or test on, in a sentence a kind."""
    counts = Counter(data.train.labels)
    tested = set(data.test.labels)
    single = [label for label in data.classes if counts[label] == 1]
    untested = [label for label in data.classes if label not in tested]
    for labels, what in ((single, "a single training picture"), (untested, "no test picture")):
        if labels:
            have = counted(len(labels), "class has", "classes have")
            yield f"{have} {what}: {naming(map(repr, labels))}"


def shared(groups: Sequence[list[One]], side: Callable[[One], object], what: str) -> Iterator[str]:
    """A sentence on the groups of the same picture that lie on more than one ``side``."""
    found = [group for group in groups if len(set(map(side, group))) > 1]
    if found:
        names = naming(" = ".join(pictures.where(i) for pictures, i in group) for group in found)
        yield f"{counted(len(found), 'picture is', 'pictures are')} {what}: {names}"


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
