"""What was made of each target, kept beside its files, and one page that shows all of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from safecl.atomic import write_bytes, write_json
from safecl.experiments.reproduce.targets import Target, names

RECORDS = "records"  # folder of what the page knows of each target


def record(target: Target, folder: Path, **found: Any) -> None:
    """Keep what the page shows of a target: heads, rows, claims, sentences, figure, alt, left_out, files."""
    (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    about = {"name": target.name, "title": target.title, "source": target.source, "caption": target.caption}
    write_json(folder / RECORDS / f"{target.name}.json", {**about, **found})


def write_index(folder: Path, title: str, about: str) -> Path:
    """The page with every target that has a record in ``folder``."""
    records: list[dict[str, Any]] = [
        json.loads((folder / RECORDS / f"{name}.json").read_bytes())
        for name in names()
        if (folder / RECORDS / f"{name}.json").is_file()
    ]
    return _write(folder / "index.html", title, about, records)


def _write(target: Path, title: str, about: str, records: Sequence[dict[str, Any]]) -> Path:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("page.html").render(title=title, about=about, targets=records)
    write_bytes(target, html.encode())
    return target
