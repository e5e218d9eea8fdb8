"""The result of each target, kept beside its files, and one page that shows all of them."""

import base64
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from safecl.atomic import write_json
from safecl.experiments.reproduce.targets import Target, names
from safecl.report.table import Table
from safecl.report.templates import render, write

RECORDS = "records"  # folder of what the page knows of each target


def record(target: Target, folder: Path, table: Table, **found: Any) -> None:
    """Keep what the page shows of a target: streams, claims, sentences, figure, alt, left_out, files."""
    (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    about = {"name": target.name, "title": target.title, "source": target.source, "caption": target.caption}
    write_json(folder / RECORDS / f"{target.name}.json", {**about, "table": asdict(table), **found})


def write_index(folder: Path, title: str, about: str) -> Path:
    """The page with every target that has a record in ``folder``."""
    files = [file for name in names() if (file := folder / RECORDS / f"{name}.json").is_file()]
    records: list[dict[str, Any]] = [json.loads(file.read_bytes()) for file in files]
    for one in records:
        one["table"] = TypeAdapter(Table).validate_python(one["table"])
        if one["figure"]:
            drawn = base64.b64encode((folder / f"{one['figure']}.svg").read_bytes()).decode("ascii")
            one["figure"] = f"data:image/svg+xml;base64,{drawn}"
    return write(folder / "index.html", render("reproduction.html", title=title, about=about, targets=records))
