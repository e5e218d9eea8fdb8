"""``safecl queue`` and ``sort``: from a folder of pictures to what a person does with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Refusal, tells

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, write_folder: Callable[..., Path], new_model: Any
) -> Path:
    """A model, learned pictures, new ones of known and unknown classes, and one that cannot be
    read.
    """
    top = tmp_path_factory.mktemp("queue")
    write_folder(top / "one", "abcd", 6)
    write_folder(top / "new", "abxy", 4, seed=1)
    (top / "new/a/learned.png").write_bytes((top / "one/a/000.png").read_bytes())
    (top / "new/broken.png").write_bytes(b"no picture")
    model = new_model()
    model.learn(top / "one")
    model.save(top / "m.safecl")
    model.save(top / "frozen.safecl", frozen=True)
    return top


def test_sort_puts_every_picture_where_predict_says(say: Say, place: Path, tmp_path: Path) -> None:
    _, said, _ = say("predict", "new", "--model", "m.safecl", "-f", "jsonl")
    rows = [json.loads(line) for line in said.splitlines()]
    expected: dict[str, int] = {}
    for row in rows:
        if "error" not in row:
            folder = "unknown" if row["unknown"] else row["label"]
            expected[folder] = expected.get(folder, 0) + 1
    code, said, error = say("sort", "m.safecl", "new", "--out", str(tmp_path / "out"))
    assert (
        code == 2
        and "1 file or folder could not be answered: new/broken.png (not a picture)" in error
    )
    found = {path.name: len(list(path.iterdir())) for path in (tmp_path / "out").iterdir()}
    assert found == expected and sum(found.values()) == 17
    for folder, count in expected.items():
        assert [folder, str(count)] in [line.split() for line in said.splitlines()]
    assert len(list((place / "new").rglob("*.png"))) == 18  # nothing was moved
    code, said, _ = say("sort", "m.safecl", "new", "--out", str(tmp_path / "out"), "--link")
    assert "17 pictures were there already." in said and "folder" not in said
    assert sum(path.is_file() for path in (tmp_path / "out").rglob("*")) == 17


def test_sort_refuses_what_it_cannot_do(refusal: Refusal, say: Say, tmp_path: Path) -> None:
    both = refusal("sort", "m.safecl", "new", "--out", str(tmp_path), "--link", "--move")
    tells(both, "command.sort.link-and-move")
    tells(refusal("sort", "m.safecl", "new", "--out", "new"), "sort.out.around", out="new")
    code, _, error = say("sort", "m.safecl", "nowhere", "--out", str(tmp_path))
    assert code == 2 and "nowhere" in error and list(tmp_path.iterdir()) == []


def test_queue_lists_what_to_label_and_omits_what_was_learned(
    say: Say, place: Path, tmp_path: Path
) -> None:
    code, said, error = say("queue", "m.safecl", "new", "-n", "5", "-f", "jsonl")
    rows = [json.loads(line) for line in said.splitlines()]
    assert (
        code == 2
        and "1 file or folder could not be answered: new/broken.png (not a picture)" in error
    )
    assert "Omitted 1 picture that the model has learned." in error and len(rows) == 5
    assert rows[0].keys() == {"picture", "label", "probability", "unknown", "worth"}
    _, table, _ = say("queue", "m.safecl", "new", "-n", "5")
    _, lines, _ = say("queue", "m.safecl", "new", "-n", "5", "--format", "csv")
    assert [line.split(",")[0] for line in lines.splitlines()[1:]] == [
        row["picture"] for row in rows
    ]
    for row, line, cells in zip(rows, table.splitlines(), lines.splitlines()[1:], strict=True):
        assert (
            row["picture"] in line
            and line.endswith(f"  worth {row['worth']:.2f}")
            and f",{row['worth']}" in cells
        )
    from safecl.classifier.classifier import ContinualClassifier

    readable = [
        path for path in sorted((place / "new").rglob("*.png")) if path.name != "broken.png"
    ]
    found = ContinualClassifier.load(place / "m.safecl", device="cpu").queue(readable, 5)
    assert [str(Path(one.where).relative_to(place)) for one in found] == [
        row["picture"] for row in rows
    ]
    assert [one.worth for one in found] == pytest.approx([row["worth"] for row in rows], abs=1e-3)


def test_queue_writes_numbered_links_and_a_page(
    refusal: Refusal, say: Say, place: Path, tmp_path: Path
) -> None:
    links = tmp_path / "next"
    page = tmp_path / "next.html"
    _, said, error = say(
        "queue",
        "m.safecl",
        "new",
        "-n",
        "12",
        "--links",
        str(links),
        "--page",
        str(page),
        "-f",
        "jsonl",
    )
    pictures = [json.loads(line)["picture"] for line in said.splitlines()]
    assert f"Wrote {links}.\nWrote {page}.\n" in error
    names = sorted(path.name for path in links.iterdir())
    assert names == [f"{rank:02} {Path(name).name}" for rank, name in enumerate(pictures, start=1)]
    assert [(links / name).resolve() for name in names] == [
        (place / name).resolve() for name in pictures
    ]
    html = page.read_text()
    assert html.count('src="data:image/jpeg;base64,') == 12 and "12. " in html
    error = refusal("queue", "m.safecl", "new", "--links", str(links))
    tells(error, "sort.folder.not-empty", path=links)


def test_a_frozen_model_has_a_queue_and_one_of_learned_pictures_is_empty(say: Say) -> None:
    code, said, _ = say("queue", "frozen.safecl", "one", "-n", "3")
    assert code == 0 and len(said.splitlines()) == 3
    code, said, error = say("queue", "m.safecl", "one")
    assert code == 0 and said == "" and "Omitted 24 pictures that the model has learned." in error
