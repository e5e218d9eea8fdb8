"""What ``safecl predict`` prints, whatever answers: a model or an exported file; and ``learn``.
Without torch.
"""

import csv
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safecl.classifier.answers.enough import range_text
from safecl.classifier.answers.tables import MAX_PAIRS
from safecl.cli.terminal import print_json, print_line, say
from safecl.errors import SafeclError
from safecl.lines import counted, csv_cell, naming, shown
from safecl.report.table import NONE
from safecl.runtime.answer import Answer, Answering, asked, one_class
from safecl.runtime.drift import Drift
from safecl.streams.pictures.find import File, as_text, picture_files, printable

if TYPE_CHECKING:
    from safecl.classifier.teach import Lesson

CHUNK = 256  # pictures that are classified at a time
NONE_OF_THESE = "none of these"  # an empty set
MIN_SHOWN = 0.005  # probability of a class, below which it would be shown as 0 %


def predict_all(
    words: list[str],
    model: Answering,
    path: Path,
    unknown: float,
    form: str,
    explain: Callable[[File, Answer], None] | None,
    sets: float | None = None,
) -> int:
    """Print an answer for every picture as soon as it is known; gives the exit code.

    ``explain``: is called with every answer, and what each learner says is printed. ``sets``: see
    ``Answering.answers``.
    """
    if sets is not None:
        model.limits(unknown, sets)  # refused before any picture is read
    if len(model.classes_) == 1:
        say(f"Note: {one_class(str(path), model.classes_[0])}", err=True)
    if few := model.cannot_tell(unknown):
        say(f"Note: {path} {few}", err=True)
    tell = printer(form, () if sets is None else ("set",))
    bad = list[str]()
    drift = Drift(model.calibration, model.known)
    alarmed = False
    ask = partial(model.answers, unknown=unknown, detail=explain is not None, sets=sets)
    for file, answer in answered(partial(ask, drift=drift), _files(words)):
        name = printable(file.path)
        if isinstance(answer, str):
            bad.append(f"{name} ({answer})")
        elif explain is not None:
            explain(file, answer)
        tell(file.path, answer)
        if drift.alarm and not alarmed and "-" in words:  # it may go on for days
            say(f"Note: {drift.told}", err=True)
            alarmed = True
    if drift.alarm:
        say(f"Note: {drift.told}", err=True)
    return tell_bad(bad)


def answer_line(lesson: "Lesson", known: int, path: Path) -> str:
    """What a person wants to know while the model is tuned that answers already."""
    sure = "" if lesson.accuracy is None else f", leave-one-out {100 * lesson.accuracy:.0f} %"
    return f"{path} answers: {counted(known, 'class')} after {lesson.seconds:.0f} s{sure}."


def lesson_lines(lesson: "Lesson", known: int, path: Path) -> Iterator[str]:
    """What a person wants to know after a session."""
    if not lesson.pictures:  # only labels were corrected
        yield from lesson.warnings
        return
    new = (
        f" ({len(lesson.new) or 'none'} of them new)"
        if len(lesson.new) < len(lesson.classes)
        else ""
    )
    skipped = f" ({lesson.skipped:,} skipped: learned before)" if lesson.skipped else ""
    yield (
        f"Learned {counted(len(lesson.classes), 'class')}{new} from"
        f" {counted(lesson.pictures, 'picture')}{skipped} in {lesson.seconds:.0f} s; {path} knows"
        f" {known} now."
    )
    if lesson.accuracy is not None and known > 1:
        told = f"Leave-one-out accuracy {100 * lesson.accuracy:.0f} %"
        if lesson.interval is not None:
            told += f" (new pictures: {range_text(*lesson.interval)})"
        yield f"{told}, the mean over all classes so far that have two pictures."
    if lesson.tuning:
        yield f"{lesson.tuning.capitalize()} (--tune to do it)."
    for true, said, count in lesson.confused[:MAX_PAIRS]:
        yield f"  {true} is confused with {said} ({counted(count, 'picture')})."
    for where, label, said, sure in lesson.suspects:
        yield (
            f"  {where} is labelled {label} and looks like {said} ({100 * sure:.0f} %): is the"
            " label right?"
        )
    for warning in lesson.warnings:
        yield f"Note: {warning}"


def printer(form: str, more: Sequence[str] = ()) -> Callable[..., None]:
    """What prints the answer to the picture at a path, or why there is none.

    ``more``: further columns, of what the answer says or of keywords that it is called with.
    """
    heads = ["picture", "label", "probability", "unknown", "error", *more]
    table = csv.DictWriter(sys.stdout, heads, lineterminator="\n")
    if form == "csv":
        table.writeheader()

    def tell(path: str, answer: Answer | str, **numbers: float) -> None:
        if form == "table":
            lines = _table_lines(printable(path), answer)
            also = "".join(f"  {k} {n:.2f}" for k, n in numbers.items())
            print_line("\n".join([next(lines) + also, *lines]))
            return
        opinions = form == "jsonl" and isinstance(answer, Answer) and bool(answer.opinions)
        said = ({"error": answer} if isinstance(answer, str) else answer.fields(opinions)) | numbers
        if form == "jsonl":
            print_json({"picture": as_text(path), **said})
            return
        row = {"picture": csv_cell(shown(printable(path)))}
        for head, value in said.items():
            row[head] = csv_cell(shown(_cell(value)))
        table.writerow(row)
        sys.stdout.flush()

    return tell


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "|".join(map(str, value))
    return "" if value is None else str(int(value) if isinstance(value, bool) else value)


def tell_bad(bad: Sequence[str]) -> int:
    """Name what could not be answered; gives the exit code."""
    if bad:
        these = counted(len(bad), "file or folder", "files or folders")
        say(f"safecl: {these} could not be answered: {naming(bad)}.", err=True)
    return 2 if bad else 0


def answered(
    ask: Callable[[list[File]], Iterable[Answer]], files: Iterable[File | None]
) -> Iterator[tuple[File, Answer | str]]:
    """Each file with its answer, or why there is none. At None the files so far are answered at
    once.
    """
    chunk = list[File]()
    for file in chain(files, [None]):
        chunk += [] if file is None else [file]
        if chunk and (file is None or len(chunk) == CHUNK):
            yield from zip(chunk, asked(chunk, ask), strict=True)
            chunk = []


def _files(words: Iterable[str]) -> Iterator[File | None]:
    for word in words:
        if word == "-":
            yield from _listed(sys.stdin.buffer)
            continue
        try:
            yield from picture_files(word)
        except SafeclError as error:
            yield File(word, word, -1, 0, str(error).rstrip("."))


def _listed(stream: Any) -> Iterator[File | None]:
    """The file on each line of a stream; None where no more lines are there yet."""
    rest = b""
    while data := stream.read1(1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        yield from (
            File.at(os.fsdecode(line.removesuffix(b"\r"))) for line in lines if line.strip()
        )
        yield None
    if rest.strip():
        yield File.at(os.fsdecode(rest))


def _table_lines(name: str, answer: Answer | str) -> Iterator[str]:
    """Answer, how sure, name; and, where there are opinions, one line for each output."""
    if isinstance(answer, str):
        yield f"{NONE:<24} {'':>6}  {name}: {answer}"
        return
    one_of = "" if answer.set is None else f"  [{', '.join(map(str, answer.set)) or NONE_OF_THESE}]"
    if answer.unknown:  # without a number: the probability is among the known classes
        yield f"{'unknown':<24} {'':>6}  {name}  (most similar: {answer.label}){one_of}"
    else:
        sure = f"{NONE:>6}" if answer.probability is None else f"{100 * answer.probability:>4.0f} %"
        yield f"{answer.label!s:<24} {sure}  {name}{one_of}"
    every: dict[str, list[str]] = {}  # after one session all say the same
    for i, (output, top) in enumerate(answer.opinions.items(), start=1):
        top = top[:1] + [one for one in top[1:3] if one[1] >= MIN_SHOWN]
        said = (
            f"{label}" if answer.probability is None else f"{label} {100 * p:.0f} %"
            for label, p in top
        )
        weight = (
            f" (counts {100 * answer.weights[output]:.0f} %)" if output in answer.weights else ""
        )
        every.setdefault(", ".join(said), []).append(
            "together" if i == len(answer.opinions) else output + weight
        )
    yield from (f"    {', '.join(outputs)}: {said}" for said, outputs in every.items())
    if answer.opinions and answer.limit is not None:
        # the two never look equal
        digits = 2 if f"{answer.score:.2f}" != f"{answer.limit:.2f}" else 4
        yield (
            f"    how known it looks: {answer.score:.{digits}f}; unknown below"
            f" {answer.limit:.{digits}f}"
        )
