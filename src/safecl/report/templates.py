"""Pages from templates: one HTML file each, without a network, light and dark, for screens and for
paper.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

import safecl
from safecl.errors import SafeclError
from safecl.lines import shown
from safecl.outputs import write_output
from safecl.report import words
from safecl.report.colours import theme

PAGES = Path(__file__).parent / "pages"
ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(PAGES),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: shown(value, keep="\n") if type(value) is str else value,
)


class Tile(NamedTuple):
    """A number worth a big letter, and what it is."""

    value: str
    name: str
    note: str


def render(template: str, **values: Any) -> str:
    """The HTML of a page; its template extends ``base.html``."""
    script = (PAGES / "page.js").read_text(encoding="utf-8")
    return ENVIRONMENT.get_template(template).render(
        theme=Markup(theme()),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=safecl.__version__,
        words=words,
        **values,
    )


def write(target: Path, text: str, kind: str = "page", force: bool | None = None) -> Path:
    """Write a page, or another text of a ``kind``, which appears whole or not at all; ``force``:
    over any file.
    """
    write_output(target, text.encode(), kind, force)
    return target


def make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SafeclError(
            "report.folder.not-made", folder=folder, strerror=error.strerror
        ) from error
    return folder
