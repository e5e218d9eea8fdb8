"""What the commands on models say."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safecl.classifier.answers import Answer
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.data import labelled, picture_files
from safecl.cli.terminal import make_console, say
from safecl.errors import SafeclError
from safecl.lines import counted, spelt
from safecl.report.table import NONE, make_table, print_table
from safecl.streams.check import naming
from safecl.streams.pictures.decode import UnreadableError
from safecl.streams.pictures.files import File, FilePictures, printable

if TYPE_CHECKING:
    from safecl.classifier.teach import Lesson

CHUNK = 256  # pictures that are classified at a time


def lesson_lines(lesson: "Lesson", model: ContinualClassifier, path: Path) -> Iterator[str]:
    """What a person wants to know after a session."""
    new = f", {len(lesson.new)} of them new" if len(lesson.new) < len(lesson.classes) else ""
    were = "was learned before and is" if lesson.skipped == 1 else "were learned before and are"
    skipped = f" ({lesson.skipped:,} {were} skipped)" if lesson.skipped else ""
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


def predict_all(files: list[str], path: Path, unknown: float, form: str, explain: bool, device: str) -> bool:
    """Print an answer for every picture as soon as it is known; False if one could not be answered."""
    model: Any = ContinualClassifier.load(path, device=device)  # type: ignore[arg-type]
    model.prepare()
    if len(model.classes_) == 1:
        say(f"Note: {path} knows one class, so it answers {model.classes_[0]} or unknown to every picture.", err=True)
    learners = model.outputs[:-1] if explain else ()
    shapes: dict[str, Any] = {"table": _table_lines, "jsonl": _json_lines, "csv": partial(_csv_lines, learners)}
    if form == "csv":
        more = [f"{name}{part}" for name in learners for part in ("", "_probability", "_weight")]
        _print(_joined("picture", "label", "probability", "unknown", "error", *more))
    bad: list[str] = []
    names = iter(_named(files))
    while chunk := list(islice(names, CHUNK)):
        for name, answer in _answers(model, chunk, unknown, explain):
            if isinstance(answer, str):
                bad.append(f"{printable(name)} ({answer})")
            for line in shapes[form](printable(name), answer):
                _print(line)
    if bad:
        these = counted(len(bad), "file or folder", "files or folders")
        say(f"safecl: {these} could not be answered: {naming(bad)}.", err=True)
    return not bad


@dataclass(frozen=True)
class _Unfit:
    """A word that names no picture, and why."""

    name: str
    why: str


def _named(words: Iterable[str]) -> Iterator[str | _Unfit]:
    for word in words:
        if word == "-":
            yield from (line.rstrip("\n") for line in sys.stdin if line.strip())
            continue
        try:
            yield from picture_files(Path(word))
        except SafeclError as error:
            yield _Unfit(word, str(error).rstrip("."))


def _answers(
    model: ContinualClassifier, names: list[str | _Unfit], unknown: float, explain: bool
) -> Iterator[tuple[str, Answer | str]]:
    """The answer to each picture, or why there is none."""
    files = [File.at(name) for name in names if isinstance(name, str)]
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
    rest = iter(range(len(files)))
    for name in names:
        yield (name.name, name.why) if isinstance(name, _Unfit) else (name, answers[next(rest)])


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


def _json_lines(name: str, answer: Answer | str) -> Iterator[str]:
    said: dict[str, Any] = {"picture": name}
    if isinstance(answer, str):
        said["error"] = answer
    else:
        said |= {"label": answer.label, "probability": round(answer.probability, 6), "unknown": answer.unknown}
        if answer.opinions:
            said |= {"opinions": answer.opinions, "weights": answer.weights, "score": round(answer.score, 6)}
    yield json.dumps(said, ensure_ascii=False)


def _csv_lines(learners: Sequence[str], name: str, answer: Answer | str) -> Iterator[str]:
    """Of each of the ``learners`` its class, its probability, and its weight in the answer."""
    if isinstance(answer, str):
        yield _joined(name, "", "", "", answer, *[""] * 3 * len(learners))
        return
    cells: list[Any] = [name, answer.label, f"{answer.probability:.6f}", int(answer.unknown), ""]
    for learner in learners:
        label, p = answer.opinions[learner][0]
        cells += [label, f"{p:.6f}", f"{answer.weights[learner]:.6f}" if learner in answer.weights else ""]
    yield _joined(*cells)


def _joined(*cells: Any) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


def _print(line: str) -> None:
    """One line, however long: it may be read by another program."""
    print(spelt(line, sys.stdout.encoding), flush=True)


def evaluate_and_print(folder: str, path: Path, unknown: float, as_json: bool, page: Path | None, device: str) -> None:
    from safecl.classifier.evaluate import evaluate
    from safecl.classifier.page import write_page
    from safecl.classifier.store import ModelFile

    pictures, _ = labelled(folder)
    model: Any = ContinualClassifier.load(path, device=device)  # type: ignore[arg-type]
    found = evaluate(model, pictures, unknown)
    if page is not None:
        write_page(ModelFile(path), page, found)
    if as_json:
        _print(json.dumps(found, ensure_ascii=False))
        return
    if found["accuracy"] is not None:
        say(f"Accuracy {100 * found['accuracy']:.1f} % on {counted(found['pictures'], 'picture')}.")
        say(f"Calibration error {found['error']:.3f}: how far 'how sure' and 'how often right' are apart.")
        say(f"{100 * found['false_alarms']:.1f} % of them are called unknown ({100 * unknown:.0f} % promised).")
    if found["unknown_pictures"]:
        say(
            f"{counted(found['unknown_pictures'], 'picture')} of classes that the model does not know: "
            f"{100 * found['found']:.1f} % are called unknown."
        )
    worst = sorted((row for row in found["classes"] if row[1] < 1), key=lambda row: row[1])[:10]
    if worst:
        rows = [[str(label), f"{100 * share:.1f} %", f"{count:,}"] for label, share, count in worst]
        heads = ("class", "accuracy", "pictures")
        print_table(make_console(), make_table("The classes with the lowest accuracy", heads, rows))
    for true, said, count in found["confused"][:5]:
        say(f"{true} is confused with {said} ({counted(count, 'picture')}).")
    if page is not None:
        say(str(page))
