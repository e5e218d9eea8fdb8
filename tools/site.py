"""Tables of settings and papers, generated when the site is built.

A hook of mkdocs. A document marks the place of a table by ``<!-- every setting -->`` or ``<!--
papers -->``.
"""

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from safecl.cli.info import every_key
from safecl.experiments.config import presets
from safecl.methods.catalog import method_settings

# a link to a file of the repository that is not part of the site
OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the tables where they are marked; a link that leads out of the site becomes its text."""
    for mark, make in GENERATED.items():
        if mark in markdown:
            markdown = markdown.replace(mark, "\n".join(make()))
    return OUTSIDE.sub(r"\1", markdown)


def settings_tables() -> Iterator[str]:
    """Every setting with its default and meaning, group by group."""
    for head, keys in groupby(every_key(), key=lambda key: key.head):
        yield f"\n## {head[:1].upper()}{head[1:]}\n"
        yield "| setting | default | meaning |\n|---|---|---|"
        for key in keys:
            yield f"| `{key.name}` | {_code(key.value)} | {_cell(key.meaning)} |"


def papers_table() -> Iterator[str]:
    """The methods with their papers, presets and what they keep."""
    sources = presets()
    yield "| method | name | kind | keeps | paper |\n|---|---|---|---|---|"
    for name, kind in method_settings().items():
        own = f"`{name}`" + ("" if name in sources else " (no preset)")
        yield f"| {kind.title} | {own} | {kind.kind} | {_cell(kind.keeps)} | {_cell(kind.paper)} |"


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def _cell(text: str) -> str:
    """Text in a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


GENERATED: dict[str, Callable[[], Iterator[str]]] = {
    "<!-- every setting -->": settings_tables,
    "<!-- papers -->": papers_table,
}
