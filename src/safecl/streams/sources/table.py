"""A table of pictures: CSV with the columns path, label and, if wanted, split and domain."""

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from safecl.errors import SafeclError
from safecl.lines import counted, csv_text
from safecl.streams.check import Offered, Rules, collect
from safecl.streams.collection import Collection
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import FOR_OTHERS, TEST, TRAIN, File, Only

COLUMNS = ("path", "label", "split", "domain")


class Row(NamedTuple):
    number: int  # as a person counts them, the header being row 1
    path: str
    label: str
    # none is of training
    split: str
    domain: str


def read_manifest(
    path: str | Path, *, only: Only | None = None, **rules: Unpack[Rules]
) -> Collection:
    """The pictures listed in ``path``, relative to its own folder. Labels are words, whatever they
    look like.

    ``only``: one half of a table that is split, in place of the training pictures.
    """
    table = Path(path).expanduser()
    if not table.is_file():
        raise SafeclError("table.missing", table=table)
    columns, records = read_csv(table)
    for needed in COLUMNS[:2]:
        if needed not in columns:
            raise SafeclError(
                "table.column.missing", table=table, needed=needed, columns=", ".join(columns)
            )
    rows = [row(record, number, table) for number, record in enumerate(records, start=2)]
    if not rows:
        raise SafeclError("table.empty", table=table)
    # as of folders, the first of these names is the test split
    tested = next((name for name in TEST if any(r.split == name for r in rows)), "")
    train = [r for r in rows if r.split not in TEST]
    test = [r for r in rows if tested and r.split == tested]
    read = [TRAIN[0], tested]
    if only is not None and train and test:
        read = [TRAIN[0] if only == "train" else tested]
        train = train if only == "train" else test
        test = []
    if left := len(rows) - len(train) - len(test):
        aside = counted(left, "row of another split is", "rows of another split are")
        told = f"{aside} left out of {table}: only those of {' and '.join(read)} are read"
        warnings.warn(f"{told}; {FOR_OTHERS[only]}.", stacklevel=2)
    if not train:
        raise SafeclError("table.no-train", table=table)
    domains = "domain" in columns
    train_domains, test_domains = (
        [r.domain for r in part] if domains else None for part in (train, test)
    )
    offered = Offered(
        table.stem,
        pictures(train, table),
        pictures(test, table) if test else None,
        place=str(table),
        train_domains=train_domains,
        test_domains=test_domains,
        split=f"the split column of {table.name}",
        home=table.parent,
    )
    return collect(offered, **rules)


def read_csv(table: Path) -> tuple[list[str], list[dict[str, Any]]]:
    try:
        text = table.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SafeclError("table.not-utf", table=table) from None
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    try:
        columns = [name.strip() for name in reader.fieldnames or ()]
        columns = [name.lower() if name.lower() in COLUMNS else name for name in columns]
        reader.fieldnames = columns
        return columns, [
            {k: csv_text(v) if isinstance(v, str) else v for k, v in row.items()} for row in reader
        ]
    except csv.Error as error:
        raise SafeclError("table.not-csv", table=table, error=error, row=reader.line_num) from None


def row(record: dict[str, Any], number: int, table: Path) -> Row:
    path = record.get("path")
    label = record.get("label")
    if not path or not path.strip():
        raise SafeclError("table.row.no-path", number=number, table=table)
    if not label or not label.strip():
        raise SafeclError("table.row.no-label", number=number, table=table, path=path)
    split, domain = (str(record.get(column) or "").strip() for column in COLUMNS[2:])
    if record.get("domain") is not None and not domain:
        raise SafeclError("table.row.no-domain", number=number, table=table, path=path)
    split = split.lower()
    if split and split not in TRAIN + TEST:
        raise SafeclError(
            "table.row.split", number=number, table=table, split=split, train=TRAIN[0], test=TEST[0]
        )
    return Row(number, path.strip(), label.strip(), split, domain)


def pictures(rows: Sequence[Row], table: Path) -> FilePictures:
    paths = [Path(r.path).expanduser() for r in rows]
    return FilePictures(
        [File.at(table.parent / path, "/".join(path.parts[-2:])) for path in paths],
        [r.label for r in rows],
        notes=[f"row {r.number} of {table.name}" for r in rows],
        skippable=True,
    )
