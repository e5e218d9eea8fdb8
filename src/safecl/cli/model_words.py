"""What the commands on models say."""

from collections.abc import Iterator
from pathlib import Path

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.enough import range_text
from safecl.classifier.history import MAX_PAIRS
from safecl.classifier.teach import Lesson
from safecl.lines import counted


def lesson_lines(lesson: Lesson, model: ContinualClassifier, path: Path) -> Iterator[str]:
    """What a person wants to know after a session."""
    if not lesson.pictures:  # only labels were corrected
        yield from lesson.warnings
        return
    new = f" ({len(lesson.new) or 'none'} of them new)" if len(lesson.new) < len(lesson.classes) else ""
    skipped = f" ({lesson.skipped:,} skipped: learned before)" if lesson.skipped else ""
    yield (
        f"Learned {counted(len(lesson.classes), 'class')}{new} from {counted(lesson.pictures, 'picture')}"
        f"{skipped} in {lesson.seconds:.0f} s; {path} knows {len(model.classes_)} now."
    )
    if lesson.accuracy is not None and len(model.classes_) > 1:
        told = f"Leave-one-out accuracy {100 * lesson.accuracy:.0f} %"
        if lesson.interval is not None:
            told += f" (new pictures: {range_text(*lesson.interval)})"
        yield f"{told}, the mean over all classes so far that have two pictures."
    for true, said, count in lesson.confused[:MAX_PAIRS]:
        yield f"  {true} is confused with {said} ({counted(count, 'picture')})."
    if rest := len(lesson.confused[MAX_PAIRS:]):
        yield f"  {counted(rest, 'more pair')} of classes, rarer, too."
    for where, label, said, sure in lesson.suspects:
        yield f"  {where} is labelled {label} and looks like {said} ({100 * sure:.0f} %): is the label right?"
    for warning in lesson.warnings:
        yield f"Note: {warning}"
