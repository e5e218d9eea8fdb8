"""Sentences as lines of a terminal: of its width, and in its encoding."""

import codecs
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # answering from an exported file needs no rich
    from rich.console import Console
    from rich.text import Text

MAX_NAMES = 5  # names that a sentence lists
NBSP = "\u00a0"
UNIT = re.compile(r"(?<=[\d±]) (?=[%±\d])|(?<=\+-) (?=\d)|(?<=\d) (?=\+-)")  # between a number and its unit or error
# What stands for a character that an encoding lacks.
PLAIN = {"–": "-", "—": "-", "−": "-", "·": "-", "…": "...", "±": "+-", "×": "x", "→": "->", "─": "-", "━": "=",
         "“": '"', "”": '"', "✓": "+", "✗": "x", NBSP: " ", "\u202f": " "}  # fmt: skip


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Replace what cannot be encoded by something like it, or by question marks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error("safecl.plain", _replaced)


def counted(number: int, one: str, several: str = "") -> str:
    """ "1 class" or "3,000 classes"; ``several``: the plural, where it does not end in s or sses."""
    return f"{number:,} {one if number == 1 else several or one + ('es' if one.endswith('s') else 's')}"


def plain(text: str) -> str:
    """With no other spaces than usual ones, for terminals, logs and whoever searches them."""
    return text.replace(NBSP, " ")


def spelt(text: str, encoding: str | None) -> str:
    """The text with what ``encoding`` lacks replaced by similar characters or question marks; done before a layout."""
    known = encoding or "utf-8"
    return NBSP.join(part.encode(known, "safecl.plain").decode(known) for part in text.split(NBSP))


def text_for(console: "Console", text: str, style: str = "") -> "Text":
    """Text in the console's encoding, with usual spaces; it is broken inside a word only where it must be."""
    from rich.text import Text

    return Text(plain(spelt(text, console.encoding)), style=style, overflow="fold")


def print_sentence(console: "Console", text: str, style: str = "") -> None:
    """Print a sentence in lines of whole words, however long; a number stays with its unit and its error."""
    from rich.cells import cell_len
    from rich.text import Text

    lines: list[str] = []
    for paragraph in UNIT.sub(NBSP, spelt(text, console.encoding)).split("\n"):
        line = ""
        for gap, word in re.findall(r"( *)([^ ]+)", paragraph):
            if line and cell_len(line + gap + word) > console.width:
                lines.append(line)
                gap, line = "", ""
            line += gap + word
        lines.append(line)
    console.print(Text(plain("\n".join(lines)), style=style), soft_wrap=True)


def naming(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - MAX_NAMES} more" if len(listed) > MAX_NAMES else ""
    return ", ".join(listed[:MAX_NAMES]) + more


def warn_omitted(names: Sequence[str], noun: str, why: str) -> None:
    if names:
        are = f"{counted(len(names), noun)} {'is' if len(names) == 1 else 'are'}"
        warnings.warn(f"{are} omitted {why}: {naming(names)}.", stacklevel=4)
