"""What became of each target, kept beside its files, and one page that shows all of them."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from safecl.atomic import write_json
from safecl.experiments.reproduce.results import Line
from safecl.experiments.reproduce.targets import names
from safecl.report.gallery import data_address
from safecl.report.table import Table
from safecl.report.templates import make_folder, render, write

RECORDS = "records"  # folder of what the page knows of each target


@dataclass(frozen=True)
class Made:
    """What became of a target. ``claims``: each in words, and whether it holds. ``files``: names in its folder."""

    name: str
    title: str
    source: str
    caption: str
    streams: list[str]
    table: Table
    claims: list[tuple[str, bool | None]]
    sentences: list[str]
    alt: str  # empty where there is no figure
    left_out: list[str]
    files: list[str]
    lines: list[Line] = field(default_factory=list)  # the numbers of the table

    def keep(self, folder: Path) -> None:
        write_json(make_folder(folder / RECORDS) / f"{self.name}.json", asdict(self))


def write_index(folder: Path, title: str, about: str) -> Path:
    """The page with every target that is kept in ``folder``."""
    files = [file for name in names() if (file := folder / RECORDS / f"{name}.json").is_file()]
    targets = [TypeAdapter(Made).validate_json(file.read_bytes()) for file in files]
    svgs = {one.name: folder / f"{one.name}.svg" for one in targets if one.alt}
    figures = {name: data_address("image/svg+xml", file.read_bytes()) for name, file in svgs.items()}
    page = render("reproduction.html", title=title, about=about, targets=targets, figures=figures)
    return write(folder / "index.html", page)
