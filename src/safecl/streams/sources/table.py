"""A table of pictures: CSV with the columns path, label and, if wanted, split and domain."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from safecl.errors import SafeclError
from safecl.lines import csv_text
from safecl.streams.check import Rules, collect
from safecl.streams.collection import Collection
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import TEST, TRAIN, File

COLUMNS = ("path", "label", "split", "domain")


class Row(NamedTuple):
    number: int  # as a person counts them, the header being row 1
    path: str
    label: str
    test: bool
    domain: str


def read_manifest(path: str | Path, **rules: Unpack[Rules]) -> Collection:
    """The pictures listed in ``path``, relative to its own folder. Labels are words, whatever they look like."""
    table = Path(path).expanduser()
    if not table.is_file():
        raise SafeclError(f"There is no table {table}; give a CSV file with the columns path and label.")
    columns, records = read_csv(table)
    for needed in COLUMNS[:2]:
        if needed not in columns:
            raise SafeclError(f"The table {table} has no column {needed!r}; its columns are: {', '.join(columns)}.")
    rows = [row(record, number, table) for number, record in enumerate(records, start=2)]
    if not rows:
        raise SafeclError(f"The table {table} lists no picture.")
    train, test = ([r for r in rows if r.test == wanted] for wanted in (False, True))
    if not train:
        raise SafeclError(f"The table {table} has no row of the split train.")
    domains = "domain" in columns
    train_domains, test_domains = ([r.domain for r in part] if domains else None for part in (train, test))
    return collect(
        table.stem, pictures(train, table), pictures(test, table) if test else None, place=str(table),
        train_domains=train_domains, test_domains=test_domains, split=f"the split column of {table.name}",
        home=table.parent, **rules,
    )  # fmt: skip


def read_csv(table: Path) -> tuple[list[str], list[dict[str, Any]]]:
    try:
        text = table.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SafeclError(f"The table {table} is not UTF-8 text; save it as UTF-8.") from None
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    try:
        columns = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = columns
        return columns, [{k: csv_text(v) if isinstance(v, str) else v for k, v in row.items()} for row in reader]
    except csv.Error as error:
        raise SafeclError(f"The table {table} is not CSV: {error} in row {reader.line_num}.") from None


def row(record: dict[str, Any], number: int, table: Path) -> Row:
    path, label = record.get("path"), record.get("label")
    if not path or not path.strip():
        raise SafeclError(f"Row {number} of the table {table} has no path.")
    if not label or not label.strip():
        raise SafeclError(f"Row {number} of the table {table} has no label ({path}).")
    split, domain = (str(record.get(column) or "").strip() for column in COLUMNS[2:])
    if record.get("domain") is not None and not domain:
        raise SafeclError(f"Row {number} of the table {table} has no domain ({path}).")
    split = split.lower()
    if split and split not in TRAIN + TEST:
        raise SafeclError(f"Row {number} of the table {table} has the split {split!r}; use {TRAIN[0]}, {TEST[0]}.")
    return Row(number, path.strip(), label.strip(), split in TEST, domain)


def pictures(rows: Sequence[Row], table: Path) -> FilePictures:
    paths = [Path(r.path).expanduser() for r in rows]
    return FilePictures(
        [File.at(table.parent / path, "/".join(path.parts[-2:])) for path in paths],
        [r.label for r in rows],
        notes=[f"row {r.number} of {table.name}" for r in rows],
        skippable=True,
    )
