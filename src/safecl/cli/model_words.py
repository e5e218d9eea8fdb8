"""What the commands on models say."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safecl.classifier.answers import Answer
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.data import picture_files
from safecl.cli.terminal import say
from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.report.table import NONE
from safecl.streams.check import naming
from safecl.streams.pictures.decode import UnreadableError
from safecl.streams.pictures.files import File, FilePictures, printable

if TYPE_CHECKING:
    from safecl.classifier.teach import Lesson

CHUNK = 256  # pictures that are classified at a time


def lesson_lines(lesson: "Lesson", model: ContinualClassifier, path: Path) -> Iterator[str]:
    """What a person wants to know after a session."""
    new = f", {len(lesson.new)} of them new" if len(lesson.new) < len(lesson.classes) else ""
    skipped = f" ({lesson.skipped:,} skipped: learned before)" if lesson.skipped else ""
    yield (
        f"Learned {counted(len(lesson.classes), 'class')}{new} from {counted(lesson.pictures, 'picture')}"
        f"{skipped} in {lesson.seconds:.0f} s; {path} knows {len(model.classes_)} now."
    )
    if lesson.accuracy is not None and len(model.classes_) > 1:
        yield f"Leave-one-out accuracy {100 * lesson.accuracy:.0f} %, over the pictures of all classes so far."
    for true, said, count in lesson.confused[:3]:
        yield f"  {true} is confused with {said} ({counted(count, 'picture')})."
    for where, label, said, sure in lesson.suspects:
        yield f"  {where} is labelled {label} and looks like {said} ({100 * sure:.0f} %): is the label right?"
    for warning in lesson.warnings:
        yield f"Note: {warning}"


def predict_all(
    words: list[str], model: ContinualClassifier, path: Path, unknown: float, form: str, explain: bool
) -> bool:
    """Print an answer for every picture as soon as it is known; False if one could not be answered."""
    model.prepare()
    if len(model.classes_) == 1:
        say(f"Note: {path} knows one class, so it answers {model.classes_[0]} or unknown to every picture.", err=True)
    learners = model.outputs[:-1] if explain else ()
    more = [f"{name}{part}" for name in learners for part in ("", "_probability", "_weight")]
    heads = ["picture", "label", "probability", "unknown", "error", *more]
    table = csv.DictWriter(sys.stdout, heads, lineterminator="\n")
    if form == "csv":
        table.writeheader()
    bad: list[str] = []
    files = _files(words)
    while chunk := list(islice(files, CHUNK)):
        for file, answer in zip(chunk, _answers(model, chunk, unknown, explain), strict=True):
            name = printable(file.path)
            if isinstance(answer, str):
                bad.append(f"{name} ({answer})")
            if form == "csv":
                table.writerow(_csv_row(name, answer, learners))
            else:  # one line, however long: it may be read by another program
                print(_json_line(name, answer) if form == "jsonl" else "\n".join(_table_lines(name, answer)))
            sys.stdout.flush()
    if bad:
        these = counted(len(bad), "file or folder", "files or folders")
        say(f"safecl: {these} could not be answered: {naming(bad)}.", err=True)
    return not bad


def _files(words: Iterable[str]) -> Iterator[File]:
    for word in words:
        if word == "-":
            yield from (File.at(line.rstrip("\n")) for line in sys.stdin if line.strip())
            continue
        try:
            yield from picture_files(word)
        except SafeclError as error:
            yield File(word, word, -1, 0, str(error).rstrip("."))


def _answers(model: ContinualClassifier, files: list[File], unknown: float, explain: bool) -> Iterator[Answer | str]:
    """The answer to each picture, or why there is none."""
    pictures = FilePictures(files, [""] * len(files))
    answers: dict[int, Answer | str] = {i: file.problem for i, file in enumerate(files) if file.problem}

    def ask() -> None:
        good = [i for i in range(len(files)) if i not in answers]
        found = model.answers(pictures.subset(good), unknown=unknown, detail=explain) if good else ()
        answers.update(zip(good, list(found), strict=True))

    try:
        ask()
    except SafeclError:  # one of them cannot be decoded
        for i in range(len(files)):
            try:
                pictures.decode(i)
            except SafeclError as error:
                answers.setdefault(i, error.reason if isinstance(error, UnreadableError) else str(error))
        ask()
    return (answers[i] for i in range(len(files)))


def _table_lines(name: str, answer: Answer | str) -> Iterator[str]:
    """Answer, how sure, name; and, where there are opinions, one line for each output."""
    if isinstance(answer, str):
        yield f"{NONE:<24} {'':>6}  {name}: {answer}"
        return
    if answer.unknown:  # without a number: the probability is among the known classes
        yield f"{'unknown':<24} {'':>6}  {name}  (most similar: {answer.label})"
    else:
        yield f"{answer.label!s:<24} {100 * answer.probability:>4.0f} %  {name}"
    for output, top in answer.opinions.items():
        weight = f" × {answer.weights[output]:.2f}" if output in answer.weights else ""
        yield f"    {output}{weight}: {', '.join(f'{label} {100 * p:.0f} %' for label, p in top[:3])}"


def _json_line(name: str, answer: Answer | str) -> str:
    said: dict[str, Any] = {"picture": name}
    if isinstance(answer, str):
        said["error"] = answer
    else:
        said |= {"label": answer.label, "probability": round(answer.probability, 6), "unknown": answer.unknown}
        if answer.opinions:
            said |= {"opinions": answer.opinions, "weights": answer.weights, "score": round(answer.score, 6)}
    return json.dumps(said, ensure_ascii=False)


def _csv_row(name: str, answer: Answer | str, learners: Sequence[str]) -> dict[str, Any]:
    """Of each of the ``learners`` its class, its probability, and its weight in the answer."""
    if isinstance(answer, str):
        return {"picture": name, "error": answer}
    row = {"picture": name, "label": answer.label, "probability": f"{answer.probability:.6f}"}
    row["unknown"] = int(answer.unknown)
    for learner in learners:
        label, p = answer.opinions[learner][0]
        row |= {learner: label, f"{learner}_probability": f"{p:.6f}"}
        if learner in answer.weights:
            row[f"{learner}_weight"] = f"{answer.weights[learner]:.6f}"
    return row
