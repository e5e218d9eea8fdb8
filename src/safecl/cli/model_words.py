"""What the commands on models say."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from safecl.classifier.classifier import Answer, ContinualClassifier
from safecl.classifier.data import labelled, picture_files
from safecl.cli.terminal import Column, make_console, print_table
from safecl.errors import SafeclError
from safecl.streams.files import File, FilePictures, printable

if TYPE_CHECKING:
    from safecl.classifier.teach import Lesson

CHUNK = 256  # pictures that are asked at a time


def lesson_lines(lesson: "Lesson", model: ContinualClassifier, path: Path) -> Iterator[str]:
    """What a person wants to know after a session."""
    new = f", {len(lesson.new)} of them new" if len(lesson.new) < len(lesson.classes) else ""
    skipped = f" ({lesson.skipped} were learned before and are skipped)" if lesson.skipped else ""
    yield (
        f"Learned {_count(len(lesson.classes), 'class', 'classes')}{new} from {_count(lesson.pictures, 'picture')}"
        f"{skipped} in {lesson.seconds:.0f} s; {path} knows {len(model.classes_)} now."
    )
    if lesson.accuracy is not None and len(model.classes_) > 1:
        yield f"Right on {100 * lesson.accuracy:.0f} % of pictures that are left out in turn, of all classes so far."
    for true, said, count in lesson.confused[:3]:
        yield f"  {true} is taken for {said} ({_count(count, 'picture')})."
    for where, label, said, sure in lesson.suspects:
        yield f"  {where} is labelled {label} and looks like {said} ({100 * sure:.0f} %): is the label right?"
    for warning in lesson.warnings:
        yield f"Note: {warning}"


def predict_all(files: list[str], path: Path, unknown: float, form: str, explain: bool, device: str) -> bool:
    """Print an answer for every picture as soon as it is known; False if one could not be read."""
    model: Any = ContinualClassifier.load(path, device=device)  # type: ignore[arg-type]
    model.prepare()
    shows: dict[str, Any] = {"table": _Table, "jsonl": _JsonLines, "csv": _Csv}
    show = shows[form](explain)
    bad = 0
    names = iter(_named(files))
    while chunk := list(islice(names, CHUNK)):
        for name, answer in _answers(model, chunk, unknown, explain):
            bad += isinstance(answer, str)
            show.row(name, answer)
    if bad:
        typer.echo(f"safecl: {_count(bad, 'picture')} could not be read; the others were answered.", err=True)
    return not bad


def _named(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if word == "-":
            yield from (line.rstrip("\n") for line in sys.stdin if line.strip())
        else:
            yield from picture_files(Path(word))


def _answers(
    model: ContinualClassifier, names: list[str], unknown: float, explain: bool
) -> Iterator[tuple[str, Answer | str]]:
    """The answer to each picture, or why there is none."""
    pictures = FilePictures([File.at(name) for name in names], [""] * len(names))
    try:
        yield from zip(names, list(model.answers(pictures, unknown=unknown, detail=explain)), strict=True)
    except SafeclError:  # one of them cannot be read: ask one by one
        for i, name in enumerate(names):
            try:
                (answer,) = model.answers(pictures.subset([i]), unknown=unknown, detail=explain)
                yield name, answer
            except SafeclError as error:
                yield name, str(error)


class _Table:
    """One line a picture: answer, how sure, name; and, with ``explain``, what each output says."""

    def __init__(self, explain: bool) -> None:
        self.explain = explain

    def row(self, name: str, answer: Answer | str) -> None:
        if isinstance(answer, str):
            typer.echo(f"{'–':<24} {'':>5}  {printable(name)}: {answer}")
            return
        label = "unknown" if answer.unknown else str(answer.label)
        near = f"  (nearest: {answer.label})" if answer.unknown else ""
        typer.echo(f"{label:<24} {100 * answer.probability:>4.0f} %  {printable(name)}{near}")
        if self.explain:
            for output, top in answer.opinions.items():
                weight = f" × {answer.weights[output]:.2f}" if output in answer.weights else ""
                said = ", ".join(f"{label} {100 * p:.0f} %" for label, p in top[:3])
                typer.echo(f"    {output}{weight}: {said}")


class _JsonLines:
    def __init__(self, explain: bool) -> None:
        self.explain = explain

    def row(self, name: str, answer: Answer | str) -> None:
        if isinstance(answer, str):
            said: dict[str, Any] = {"picture": printable(name), "error": answer}
        else:
            said = {"picture": printable(name), "label": answer.label, "probability": round(answer.probability, 6)}
            said["unknown"] = answer.unknown
            if self.explain:
                said |= {"opinions": answer.opinions, "weights": answer.weights, "score": round(answer.score, 6)}
        typer.echo(json.dumps(said, ensure_ascii=False))


class _Csv:
    HEADS = ("picture", "label", "probability", "unknown", "error")

    def __init__(self, explain: bool) -> None:
        self._print(self.HEADS)

    def row(self, name: str, answer: Answer | str) -> None:
        if isinstance(answer, str):
            self._print((printable(name), "", "", "", answer))
        else:
            self._print((printable(name), answer.label, f"{answer.probability:.6f}", int(answer.unknown), ""))

    def _print(self, cells: Iterable[Any]) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(cells)
        typer.echo(line.getvalue())


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
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    console = make_console()
    if found["accuracy"] is not None:
        typer.echo(f"Right on {100 * found['accuracy']:.1f} % of {_count(found['pictures'], 'picture')}.")
        typer.echo(f"Calibration error {found['error']:.3f}: how far 'how sure' and 'how often right' are apart.")
        share = f"{100 * found['false_alarms']:.1f} % of them are called unknown ({100 * unknown:.0f} % promised)"
        typer.echo(f"{share}.")
    if found["unknown_pictures"]:
        typer.echo(
            f"{_count(found['unknown_pictures'], 'picture')} of classes that the model does not know: "
            f"{100 * found['found']:.1f} % are called unknown."
        )
    worst = sorted(found["classes"], key=lambda row: row[1])[:10]
    columns = [Column("class", folds=True), Column("right", right=True), Column("pictures", right=True)]
    rows = [[str(label), f"{100 * share:.1f} %", str(count)] for label, share, count in worst]
    print_table(console, "The classes answered worst", columns, rows)
    for true, said, count in found["confused"][:5]:
        typer.echo(f"{true} is taken for {said} ({_count(count, 'picture')}).")
    if page is not None:
        typer.echo(str(page))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
