"""The documents point to files that exist, and name what the program has."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from safecl.engine.metrics.history import History
from safecl.errors import SafeclError
from safecl.experiments.config import presets
from safecl.methods.catalog import method_settings

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")] + sorted(
    ROOT.glob("docs/*.md")
)


def test_every_relative_link_leads_to_a_file() -> None:
    links = []
    for document in DOCUMENTS:
        text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
        links += [
            (document, link) for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link
        ]
    assert links
    assert [
        (document.name, link) for document, link in links if not (document.parent / link).exists()
    ] == []


def test_the_demo_promises_elsewhere_what_was_measured() -> None:
    readme, results = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/results.md")
    )
    page = (ROOT / "src/safecl/report/pages/demo.html").read_text(encoding="utf-8")
    told = r"On (\d+) cells .* is ([\d.]+) points above RanPAC[^;]*; (\d+) are"
    cells, gain, below = re.findall(told, readme, re.DOTALL)[0]
    assert f"over {cells} combinations" in page
    assert f"SAFE is {gain} points above RanPAC on average and below it in {below};" in page
    assert f"+{gain} over {cells} cells, {below} of them" in results


def test_the_readme_and_the_page_of_methods_name_every_method_and_preset() -> None:
    readme, page = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/methods.md")
    )
    rows = readme[readme.index("| preset |") :].split("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[1])}
    assert named <= set(presets()) and set(method_settings()) <= named
    assert [name for name in presets() if f"`{name}`" not in page and name != "demo"] == []
    titles = [kind.title for kind in method_settings().values()]
    assert [title for title in titles if f"**{title}**" not in page] == []


def test_the_page_on_running_names_numbers_that_a_summary_has() -> None:
    row = re.findall(
        r"\| `summary.json` \| ([\w, ]+);", (ROOT / "docs/running.md").read_text(encoding="utf-8")
    )[0]
    history = History(("safe",))
    history.add({"safe": [1.0]}, [1])
    assert set(row.split(", ")) <= history.summary().keys()


def test_every_room_of_the_package_has_a_row_and_every_row_its_files() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = text[text.index("| room of") :].split("\n\n")[0]
    named = set(re.findall(r"`([\w/]+(?:/|\.py))`", rows))
    package = ROOT / "src" / "safecl"
    assert [name for name in sorted(named) if not any(package.rglob(name.rstrip("/")))] == []
    assert {f"{path.parent.name}/" for path in package.glob("*/__init__.py")} <= named


def test_who_has_pictures_and_no_paper_reads_no_words_of_papers() -> None:
    words = re.compile(r"\bGram\b|\b[fs]2[fs]\b|row in every head")
    for name in ("model", "quickstart", "serving"):
        assert words.findall((ROOT / f"docs/{name}.md").read_text(encoding="utf-8")) == [], name
    for file in (
        *(ROOT / "src/safecl/classifier").glob("*.py"),
        *(ROOT / "src/safecl/cli").glob("*.py"),
    ):
        if file.name == "schema.py":  # of docs/format.md, which is for who writes a reader
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docstrings = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree)
            if isinstance(node, documented)
        }
        said = [
            n.value
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
        assert [text for text in said if words.search(text) and text not in docstrings] == [], (
            file.name
        )


def test_the_sentences_of_the_troubleshooting_page_are_those_of_the_program() -> None:
    quoted = re.findall(
        r"^> (.*)$", (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    said = list(sentences())
    assert len(quoted) >= 25
    assert [text for text in quoted if not any(_says(template, text) for template in said)] == []


def test_what_the_quickstart_shows_is_what_the_program_prints() -> None:
    text = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    shown = "\n".join(block for block in blocks if block.startswith("$ "))
    lines = [line.strip() for line in shown.splitlines() if line.endswith((".", "?", ")"))]
    said = [text.strip() for text in sentences() if sum(map(str.isalpha, text)) >= 10]
    patterns = [".*?".join(map(re.escape, text.split("…"))) for text in said]
    assert len(lines) >= 10
    assert [
        line for line in lines if not any(re.fullmatch(pattern, line) for pattern in patterns)
    ] == []


def sentences() -> Iterator[str]:
    """Every text of the program, with … for what is put into it."""
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"\{[^{}]*\}", "…", node.value)  # of an error's sentence, its fields


def _says(template: str, quoted: str) -> bool:
    """Whether the quotation is the sentence, whose last … may stand for its end."""
    return template == quoted or (
        quoted.endswith("…") and template.rstrip(".") == quoted.rstrip(".")
    )


def test_every_name_of_the_api_has_its_parameters_and_an_example() -> None:
    parts = re.split(
        r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    for place, text in zip(parts[1::2], parts[2::2], strict=True):
        module, _, name = place.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        said = inspect.getdoc(found) or ""
        takes = () if found is SafeclError else inspect.signature(found).parameters
        assert [
            one for one in takes if one not in ("args", "kwargs") and f"``{one}" not in said
        ] == [], place
        assert re.search(r"```py(thon)?\n", text), place


def test_the_examples_of_the_api_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as they stand; what needs the hub is marked py and is only read."""
    noise = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(4):
            image = Image.fromarray(noise.integers(0, 256, (20, 24, 3), dtype=np.uint8))
            image.save(tmp_path / "photos" / label / f"{i}.png")
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/api.md", "exec"), names)
    assert len(blocks) >= 14 and names["model"].classes_.tolist() == ["cat", "dog"]
    assert len(names["stream"]) == 2 and len(names["arrays"]) == len(names["tensors"]) == 2
    for block in re.findall(r"^```py\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        ast.parse(block)
