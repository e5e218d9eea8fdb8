"""Sentences as lines of a terminal: of its width, and in its encoding."""

import re

from rich.cells import cell_len

NBSP = "\u00a0"
# What stands for a character that an encoding lacks.
PLAIN = {"–": "-", "—": "-", "−": "-", "·": "-", "…": "...", "±": "+-", "×": "x", "→": "->", "─": "-", "━": "=",
         "“": '"', "”": '"', "✓": "+", "✗": "x", NBSP: " ", "\u202f": " "}  # fmt: skip


def counted(number: int, one: str, several: str = "") -> str:
    """ "1 class" or "3,000 classes"; ``several``: ``one`` with an s if not given."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def spelt(text: str, encoding: str | None) -> str:
    """The text with characters that ``encoding`` lacks replaced by similar ones, or by question marks.

    Done before a layout: a replacement may be longer than what it stands for.
    """
    try:
        text.encode(encoding or "utf-8")
        return text
    except UnicodeEncodeError:
        return "".join(_spelt(character, encoding or "utf-8") for character in text)


def _spelt(character: str, encoding: str) -> str:
    if character == NBSP:  # becomes a usual space when the lines are made
        return character
    try:
        character.encode(encoding)
        return character
    except UnicodeEncodeError:
        return PLAIN.get(character, "?")


def plain(text: str) -> str:
    """With no other spaces than usual ones, for terminals, logs and whoever searches them."""
    return text.replace(NBSP, " ")


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` columns, broken between words; a number stays with its unit and its error.

    A word that is longer than a line, such as a path, has a line of its own and is left whole.
    """
    lines: list[str] = []
    for paragraph in re.sub(r"(?<=[\d±]) (?=[%±\d])|(?<=\+-) (?=\d)|(?<=\d) (?=\+-)", NBSP, text).split("\n"):
        line = ""
        for gap, word in re.findall(r"( *)([^ ]+)", paragraph):
            if line and cell_len(line) + len(gap) + cell_len(word) > width:
                lines.append(line)
                line = word
            else:
                line += gap + word
        lines.append(line)
    return [plain(line) for line in lines]
