"""The map of the paper in docs/methods.md names lines that are there."""

import ast
import re
from pathlib import Path

import pytest

from safecl.methods.floors import floor
from safecl.methods.safe import SAFE

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "safecl"
TEXT = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("|") and "`" in line]
LINES = [row for row in ROWS if ".py: " in row]
QUESTIONS = [row for row in ROWS if "| `beyond/" in row or "| `variants/" in row]
FOLLOWS = {
    "grams",
    "judging",
    "learn",
    "learning",
    "networks",
    "parts",
    "read",
    "refresh",
}


def names(file: Path) -> set[str]:
    """Functions, classes, and methods as ``Class.method``."""
    found = set[str]()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (one for one in node.body if isinstance(one, ast.FunctionDef))
            found |= {f"{node.name}.{one.name}" for one in inner}
    return found


def test_every_equation_is_on_the_map() -> None:
    said = {int(number) for row in LINES for number in re.findall(r"\((\d+)\)", row)}
    assert said == set(range(1, 12))


@pytest.mark.parametrize("row", LINES)
def test_an_equation_stands_where_the_map_says(row: str) -> None:
    (place,) = re.findall(r"`([\w/]+\.py): ([\w.]+)`((?:, `[\w.]+`)*)", row)
    file, first, more = place
    there = names(PACKAGE / file)
    assert {first, *re.findall(r"`([\w.]+)`", more)} <= there


def test_the_table_of_questions_is_what_the_classes_say() -> None:
    """Whatever a floor answers otherwise, but for what follows from that for edits and engine."""
    found: dict[str, set[str]] = {}
    for room in ("beyond", "variants"):
        for file in (PACKAGE / "methods" / room).glob("[a-z]*.py"):
            own = vars(floor(f"{room}.{file.stem}"))
            for name in own.keys() & set(dir(SAFE)) - FOLLOWS:
                if not name.startswith("_"):
                    found.setdefault(name, set()).add(f"{room}/{file.name}")
    said = {
        question: set(re.findall(r"`(\w+/\w+\.py)`", row))
        for row in QUESTIONS
        for question in re.findall(r"`(\w+)`", row)
    }
    assert said == found
