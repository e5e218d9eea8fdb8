"""The page says what the run folders hold, and names the file when it cannot be made."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from safecl.errors import SafeclError
from safecl.report import page as page_module
from safecl.report.page import write_page


@pytest.fixture(autouse=True)
def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of a page's time, and these tests read only its text."""
    monkeypatch.setattr(page_module, "inline_svg", lambda *_: Markup("<svg></svg>"))


def pooled(folder: Path, output: str) -> str:
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    return f"{100 * line['pooled'][output]:.1f} %"


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_headline_gives_each_methods_final_accuracy(make_run: Any, page: Any) -> None:
    folders = [make_run(method, method=method) for method in ("safe", "ranpac", "finetune")]
    safe, ranpac, finetune = (pooled(folder, folder.name) for folder in folders)
    sentence = f"After 5 sessions and 50 classes SAFE knows {safe}, RanPAC {ranpac} and fine-tuning {finetune}."
    assert sentence in page(folders).text


def test_labels_are_shown_and_never_run(make_run: Any, page: Any) -> None:
    strange = [
        "<script>alert(1)</script>",
        "two  words",
        "42",
        "日本語",
        "&amp;",
        '"quoted"',
        "{{ 7 * 7 }}",
        "$x^2$",
        "",
        "x" * 200,
    ]
    seen = page([make_run(labels=strange + [str(i) for i in range(40)])], title="<b>bold</b>")
    assert seen.tags["script"] == 0 and seen.tags["b"] == 3  # the legend's three numbers
    assert all(label in seen.text for label in strange)
    assert "<b>bold</b>" in seen.text


def test_numeric_labels_are_as_good_as_words(make_run: Any, page: Any) -> None:
    folder = make_run()
    examples = json.loads((folder / "examples.json").read_text())
    examples[0].update(label=7, predictions={"slow": 8, "fast": 7, "safe": 7})
    (folder / "examples.json").write_text(json.dumps(examples[:1]))
    text = page([folder]).text
    assert "“7”" in text and "✗ wrong: “8”" in text and "✓ right" in text


def test_unfinished_run_shows_what_is_there_and_says_so(make_run: Any, page: Any) -> None:
    folder = make_run(done=3)
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write('{"session": 4, "name": "é'.encode()[:-1])  # torn inside a character
    text = page([folder]).text
    assert "SAFE is not finished: 3 of 5 sessions done." in text
    assert "After 3 of 5 sessions and 30 classes SAFE knows" in text
    assert "Test pictures" not in text


def test_run_that_has_just_started_has_a_page(make_run: Any, page: Any) -> None:
    folder = make_run(done=0)
    for name in ("metrics.jsonl", "losses.jsonl", "resolved.yaml"):
        (folder / name).unlink()
    assert "No session is finished yet." in page([folder]).text


def test_runs_at_different_moments_are_not_compared_as_equals(make_run: Any, page: Any) -> None:
    text = page([make_run("a"), make_run("b", method="ranpac", done=2)]).text
    assert "after 5 sessions and 50 classes; RanPAC knows" in text


def test_domain_stream_speaks_of_domains(make_run: Any, page: Any) -> None:
    text = page([make_run(protocol="domain", sessions=6, done=4)]).text
    assert "After 4 of 6 domains of the same 10 classes SAFE knows" in text
    assert "Hatched: not learned yet." in text


def test_runs_of_one_method_are_told_apart(make_run: Any, page: Any) -> None:
    text = page([make_run("a", seed=0), make_run("b", seed=1)]).text
    assert "SAFE (seed 0)" in text and "SAFE (seed 1)" in text
    assert "SAFE (c)" in page([make_run("c"), make_run("d")]).text


def test_missing_numbers_are_dashes(make_run: Any, page: Any) -> None:
    folder = make_run(done=1)
    line = json.loads((folder / "metrics.jsonl").read_text())
    line.update(
        forgetting={"safe": None}, peak_memory=None, bytes_kept=None, pooled={"safe": float("nan"), "slow": 0.5}
    )
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    text = page([folder]).text
    assert "nan" not in text.lower() and "–" in text


def test_command_is_given_as_one_would_type_it(make_run: Any, page: Any) -> None:
    folder = make_run()
    edit(folder / "facts.json", command=["safecl", "run", "glyphs", "name=two words"])
    assert "safecl run glyphs 'name=two words'" in page([folder]).text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("facts.json", "{"),
        ("facts.json", '{"method": "safe"}'),
        ("summary.json", "[1, 2"),
        ("examples.json", '[{"file": 3}]'),
        ("examples.json", '[{"file": "../../secret.png", "label": "a"}]'),
        ("metrics.jsonl", '{"session": 1\n{"session": 2}\n'),
        ("metrics.jsonl", '{"session": "first"}\n'),
        ("losses.jsonl", '{"session": 1, "phase": "slow", "step": 1, "loss": "low"}\n'),
    ],
)
def test_damaged_file_is_named_in_one_sentence(make_run: Any, page: Any, name: str, content: str) -> None:
    folder = make_run()
    (folder / name).write_text(content)
    with pytest.raises(SafeclError) as caught:
        page([folder])
    assert str(folder / name) in str(caught.value) and "\n" not in str(caught.value)


def test_missing_and_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(SafeclError, match="nowhere"):
        write_page([tmp_path / "nowhere"], tmp_path / "page.html", "T")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SafeclError, match=r"empty.facts\.json is missing"):
        write_page([tmp_path / "empty"], tmp_path / "page.html", "T")
    with pytest.raises(SafeclError, match="at least one"):
        write_page([], tmp_path / "page.html", "T")


def test_target_that_cannot_be_written_is_named(make_run: Any, tmp_path: Path) -> None:
    folder = make_run(done=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(SafeclError, match=r"file cannot be made"):
        write_page([folder], tmp_path / "file" / "page.html", "T")


def test_failed_write_leaves_the_old_page_and_no_scraps(
    make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(done=1)
    target = tmp_path / "out" / "page.html"
    write_page([folder], target, "Old")
    before = target.read_bytes()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(SafeclError, match="Permission denied"):
        write_page([folder], target, "New")
    assert target.read_bytes() == before and os.listdir(target.parent) == ["page.html"]
