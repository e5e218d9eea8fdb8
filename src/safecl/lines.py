"""Text for people: what can be shown, and sentences as lines of a terminal, of its width and in its
encoding.
"""

import codecs
import json
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from safecl.errors import SafeclError

if TYPE_CHECKING:  # answering from an exported file needs no rich
    from rich.console import Console
    from rich.text import Text

MAX_NAMES = 5  # names that a sentence lists
NBSP = "\u00a0"
# between a number and its unit or error
UNIT = re.compile(r"(?<=[\d±]) (?=[%±\d])|(?<=\+-) (?=\d)|(?<=\d) (?=\+-)")
# What stands for a character that an encoding lacks.
PLAIN = {
    "–": "-",
    "—": "-",
    "−": "-",
    "·": "-",
    "…": "...",
    "±": "+-",
    "×": "x",
    "→": "->",
    "─": "-",
    "━": "=",
    "“": '"',
    "”": '"',
    "✓": "+",
    "✗": "x",
    NBSP: " ",
    "\u202f": " ",
}
# What a terminal obeys, what turns the order of letters, and what nobody sees: control,
# bidirectional and zero-width characters, lone surrogates and blank letters. Joiners and variants
# are part of Persian, of Hindi and of many emoji.
HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]|(?<![^\\sA-Za-z\xc0-\u024f\u200b-\u206f])[\u200c\u200d\ufe00-\ufe0f]"
    "|[\u200c\u200d](?![^\x00-\u024f\u200b-\u206f])"
)
# Where a spreadsheet takes a cell for a formula, unless it is a number; and an apostrophe that
# keeps it from that.
FORMULA = re.compile("'*[=+\\-@＝＋－＠\t\r\n]")
NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?")


def shown(text: str, keep: str = "") -> str:
    """With escapes such as \\x1b in place of what is ``HIDDEN``, but for the characters of
    ``keep``.
    """
    return HIDDEN.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def csv_cell(text: str) -> str:
    """The text of a cell in a CSV file: no spreadsheet takes it for a formula, and ``csv_text``
    gives the text back.
    """
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def csv_text(cell: str) -> str:
    """The text of which ``csv_cell`` made a cell."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Replace what cannot be encoded by something like it, or by question marks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return (
        "".join(PLAIN.get(character, "?") for character in error.object[error.start : error.end]),
        error.end,
    )


codecs.register_error("safecl.plain", _replaced)


def as_json(value: Any, *, ascii: bool = False, indent: int | None = None) -> str:
    """JSON, which has no word for a number that is not finite: that is a fault of whoever has made
    it.
    """
    try:
        return json.dumps(value, ensure_ascii=ascii, indent=indent, allow_nan=False)
    except ValueError as error:
        raise SafeclError("number.not-finite") from error


def counted(number: int, one: str, several: str = "") -> str:
    """ "1 class" or "3,000 classes"; ``several``: the plural, where it does not end in s or
    sses.
    """
    return (
        f"{number:,}"
        f" {one if number == 1 else several or one + ('es' if one.endswith('s') else 's')}"
    )


def slug(text: str) -> str:
    """A name for a file: lower case letters, digits and dashes."""
    return re.sub(r"\W+", "-", text.lower()).strip("-")[:80] or "pictures"


def plain(text: str) -> str:
    """With no other spaces than usual ones, for terminals, logs and whoever searches them."""
    return text.replace(NBSP, " ")


def spelt(text: str, encoding: str | None) -> str:
    """The text as it can be shown, what ``encoding`` lacks replaced by something like it; done
    before a layout.
    """
    known = encoding or "utf-8"
    parts = shown(text, keep="\n").split(NBSP)
    return NBSP.join(part.encode(known, "safecl.plain").decode(known) for part in parts)


def text_for(console: "Console", text: str, style: str = "") -> "Text":
    """Text in the console's encoding, with usual spaces; it is broken inside a word only where it
    must be.
    """
    from rich.text import Text

    return Text(plain(spelt(text, console.encoding)), style=style, overflow="fold")


def print_sentence(console: "Console", text: str, style: str = "") -> None:
    """Print a sentence in lines of whole words, however long; a number stays with its unit and its
    error.
    """
    from rich.cells import cell_len
    from rich.text import Text

    lines: list[str] = []
    for paragraph in UNIT.sub(NBSP, spelt(text, console.encoding)).split("\n"):
        line = ""
        for gap, word in re.findall(r"( *)([^ ]+)", paragraph):
            if line and cell_len(line + gap + word) > console.width:
                lines.append(line)
                gap = ""
                line = ""
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
