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


def test_every_number_in_a_table_of_seconds_is_made_from_raw_lines() -> None:
    """Of speed.md: a table beside those is one of words, and a whole is the sum of what stands
    before it.
    """
    text = (tables.ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    by_hand = [line for line in tables.MARKED.sub("", text).splitlines() if line.startswith("|")]
    assert [line for line in by_hand if re.search(r"\d", line.replace("FP8", ""))] == []
    for line in tables.later_session()[2:]:
        *parts, whole = map(float, line.strip("|").split("|")[2:])
        assert abs(sum(parts) - whole) < 0.04  # each is rounded


def test_float32_is_beside_the_lines_of_the_cells() -> None:
    seeds = [
        run["own"]["safe"]
        for run in tables.grid()
        if (run["stream"], run["backbone"], run["pet"]) == ("PACS", "`reg4_b`", "SSF")
    ]
    (line,) = [line for line in tables.float32() if line.startswith("|PACS|`reg4_b`|")]
    assert len(seeds) == 3 and line.split("|")[3].startswith(f"{sum(seeds) / 3:.1f} ± ")


def test_every_raw_file_is_needed() -> None:
    script = Path(tables.__file__).read_text(encoding="utf-8")
    # which tells of one
    script += (tables.RESULTS.parents[1] / "docs" / "results.md").read_text(encoding="utf-8")
    assert [file.name for file in tables.RESULTS.iterdir() if file.name not in script] == []
