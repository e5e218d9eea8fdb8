"""The tables of the documents are those of the raw results."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import tables


def test_every_table_is_what_the_raw_lines_give() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in tables.documents()}
    assert {name: tables.written(text) for name, text in texts.items()} == texts
    named = re.findall(r"<!-- table (\w+) -->", "\n".join(texts.values()))
    assert sorted(named) == sorted(tables.TABLES)  # each once: a claim has one number


def test_every_raw_file_is_needed() -> None:
    script = Path(tables.__file__).read_text(encoding="utf-8")
    script += (tables.RESULTS.parents[1] / "docs" / "results.md").read_text(encoding="utf-8")  # which tells of one
    assert [file.name for file in tables.RESULTS.iterdir() if file.name not in script] == []
