"""The page says what the run folders hold, and names the file when it cannot be made."""

import json
import os
import re
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from safecl.errors import SafeclError
from safecl.report import tables
from safecl.report.page import write_page
from safecl.report.runs import read_run
from safecl.report.series import all_series
from safecl.report.words import accuracy, short
from tests.conftest import raises

pytestmark = pytest.mark.usefixtures("undrawn")


def known(folder: Path, output: str, kind: str = "pooled") -> str:
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    pictures = sum(line["test_counts"][: line["session"] if kind == "seen" else None])
    return accuracy(line[kind][output], pictures).replace("\u00a0", " ")


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_headline_gives_each_methods_final_accuracy(make_run: Any, page: Any) -> None:
    folders = [make_run(method, method=method) for method in ("safe", "ranpac", "finetune")]
    safe, ranpac, finetune = (known(folder, folder.name) for folder in folders)
    sentence = (
        f"After 5 sessions and 50 classes SAFE knows {safe}, RanPAC {ranpac} and Fine-tuning"
        f" {finetune}."
    )
    assert sentence in page(folders).text


def test_the_best_of_several_runs_is_above_the_next_with_the_error_of_the_difference(
    make_run: Any, page: Any
) -> None:
    """100 pictures, of which RanPAC has three right less than SAFE has, and one that SAFE has
    not.
    """
    folders = [make_run(method, method=method, sessions=1) for method in ("safe", "ranpac")]
    for folder, wrong, accuracy_ in zip(folders, ([0], [1, 2, 3]), (0.99, 0.97), strict=True):
        lines = [
            json.loads(text) for text in (folder / "predictions.jsonl").read_text().splitlines()
        ]
        for i, line in enumerate(lines):
            line["predicted"] = {folder.name: "nothing" if i in wrong else line["label"]}
        (folder / "predictions.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
        metrics = json.loads((folder / "metrics.jsonl").read_text())
        metrics["pooled"][folder.name] = metrics["seen"][folder.name] = accuracy_
        (folder / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
    error = 100 * stdev([-1, 1, 1, 1, *[0] * 96]) / 10
    assert (
        f"SAFE is 2.0 ± {error:.1f} points above RanPAC, picture by picture." in page(folders).text
    )
    edit(folders[1] / "facts.json", seed=1)  # other pictures
    assert "points above" not in page(folders).text


def test_forgetting_is_told_by_the_session_that_is_forgotten_most(make_run: Any, page: Any) -> None:
    folders = [make_run(method, method=method, sessions=3) for method in ("ranpac", "finetune")]
    lines = [
        [json.loads(line) for line in (each / "metrics.jsonl").read_text().splitlines()]
        for each in folders
    ]
    lines[1][2]["accuracy"]["finetune"][1] = 0.0
    (folders[1] / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[1]))
    then = [100 * lines[i][1]["accuracy"][folder.name][1] for i, folder in enumerate(folders)]
    now = 100 * lines[0][2]["accuracy"]["ranpac"][1]
    sentence = (
        f"Session 2, then and now: RanPAC {then[0]:.1f} → {now:.1f} % and Fine-tuning {then[1]:.1f}"
        " → 0.0 %."
    )
    assert sentence in page(folders).text.replace("\u00a0", " ")


def test_pictures_that_the_learners_classify_differently_are_shown(
    make_run: Any, page: Any
) -> None:
    folder = make_run(sessions=2, examples=2)
    assert "Where the learners disagree" not in page([folder]).text
    examples = json.loads((folder / "examples.json").read_text())
    examples[0].update(why="apart", label="a", predictions={"slow": "b", "fast": "a", "safe": "a"})
    (folder / "examples.json").write_text(json.dumps(examples))
    text = (
        page([folder])
        .text.partition("Where the learners disagree")[2]
        .partition("Where it goes wrong")[0]
    )
    assert "✓ right" in text and "✗ wrong: “b”" in text


def test_the_page_of_the_demo_says_that_its_stream_was_chosen(make_run: Any, page: Any) -> None:
    folders = [
        make_run(method, method=method, sessions=2, preset="demo")
        for method in ("safe", "ranpac", "finetune")
    ]
    text = page(folders).text
    assert "This stream was chosen" in text
    told_in_order = (
        "What fine-tuning forgets",
        "What a frozen backbone cannot see",
        "What it cost",
        "The numbers",
    )
    assert (
        sorted(told_in_order, key=text.index) == list(told_in_order)
        and "Which learner counts" not in text
    )
    last = json.loads((folders[1] / "metrics.jsonl").read_text().splitlines()[-1])["accuracy"][
        "ranpac"
    ]
    told = text.partition("Accuracy at the end by session, in percent")[2].partition("RanPAC")[2]
    assert told.startswith("".join(f"{100 * value:.1f}" for value in last))
    assert "This stream was chosen" not in page(folders[:2]).text


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
    assert seen.tags["script"] == 1 and seen.tags["b"] == 3  # the legend's three numbers
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
    folder = make_run(protocol="domain", sessions=6, done=4)
    text = page([folder]).text
    assert (
        f"After 4 of 6 domains of the same 10 classes SAFE knows {known(folder, 'safe', 'seen')}."
        in text
    )
    assert "Hatched: not learned yet." in text


def test_domain_stream_gives_both_accuracies_under_their_names(make_run: Any, page: Any) -> None:
    folder = make_run(protocol="domain", sessions=4)
    text = page([folder]).text
    assert "everything learned so far" not in text and "everything seen" not in text
    assert "On the test pictures of all domains, also those to come, after each session." in text
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for kind, name in (
        ("pooled", "on all domains, also those to come"),
        ("seen", "on the domains learned so far"),
    ):
        table = text[text.index(f"in percent: {name}") :]
        rows = table[: table.index("4 · style 4") + 60]
        for line in lines:
            assert f"{100 * line[kind]['safe']:.1f}" in rows
    assert "Average over sessions, all domains" in text
    assert "Average over sessions, domains learned so far" in text


def test_class_stream_has_one_accuracy(make_run: Any, page: Any) -> None:
    text = page([make_run(sessions=2)]).text
    assert (
        "On the test pictures of everything learned so far, after each session." in text
        and "domain" not in text
    )


def test_without_a_test_picture_there_are_dashes_and_the_reason(make_run: Any, page: Any) -> None:
    folder = make_run(sessions=1)
    line = json.loads((folder / "metrics.jsonl").read_text())
    nothing = {"safe": None, "slow": None, "fast": None}
    line.update(
        test_counts=[0],
        accuracy={o: [None] for o in nothing},
        pooled=nothing,
        seen=nothing,
        forgetting=nothing,
    )
    (folder / "metrics.jsonl").write_text(json.dumps(line))
    (folder / "predictions.jsonl").write_text("")
    text = page([folder]).text
    assert "No test picture, so no accuracy." in text
    assert (
        "0.0 %" not in text.partition("Time and memory")[0].partition("What the method decided")[0]
    )


def test_confused_classes_are_shown_with_their_mistakes(make_run: Any, page: Any) -> None:
    seen = page([make_run(sessions=2)])
    mistakes = seen.text.partition("Where it goes wrong")[2].partition("Accuracy by class")[0]
    assert (
        "confused most often" in mistakes
        and mistakes.count("✗ wrong: “B”") == 2
        and seen.tags["img"] == 8 + 2
    )
    table = seen.text[seen.text.index("Accuracy by class") :]
    assert table.index("70.0 ± 13.6 %") < table.index("100.0 ± 8.0 %")  # the worst first


def test_what_the_method_decided_is_told(make_run: Any, page: Any) -> None:
    text = page([make_run(sessions=4)]).text
    table = text[text.index("What the method decided") :]
    for word in ("not used", "75.0 %", "dropped", "50.0 %"):
        assert word in table
    assert "What the method decided" not in page([make_run("other", method="ranpac")]).text


def test_answers_that_agree_are_one_line(make_run: Any, page: Any) -> None:
    folder = make_run(sessions=2, examples=1)
    examples = json.loads((folder / "examples.json").read_text())
    examples[0].update(label="a", predictions={"slow": "b", "fast": "a", "safe": "a"})
    (folder / "examples.json").write_text(json.dumps(examples[:1]))
    text = page([folder]).text
    assert "SAFE, Fast✓ right" in text and "Slow✗ wrong: “b”" in text


def test_a_run_that_failed_says_why(make_run: Any, page: Any) -> None:
    folder = make_run(done=2)
    (folder / "failed.json").write_text(json.dumps({"error": "The disk is full."}))
    assert "SAFE failed: The disk is full." in page([folder]).text


def test_runs_of_one_method_are_told_apart(make_run: Any, page: Any) -> None:
    folders = [make_run(f"pet{pet}") for pet in ("ssf", "vpt")]
    edit(folders[1] / "facts.json", pet="vpt")
    text = page(folders).text
    assert "SAFE (PET ssf)" in text and "SAFE (PET vpt)" in text
    assert "SAFE (c)" in page([make_run("c"), make_run("d")]).text
    assert "SAFE (e/safe)" in page([make_run("e/safe"), make_run("f/safe")]).text


def test_of_many_runs_the_headline_names_the_best(make_run: Any, page: Any) -> None:
    folders = [
        make_run(f"r{i}", method="finetune", sessions=2, seed=i, preset=f"p{i}") for i in range(4)
    ]
    best = max(
        folders,
        key=lambda folder: json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])[
            "seen"
        ]["finetune"],
    )
    assert (
        f"4 runs. Best: Fine-tuning (preset p{best.name[1:]}, seed {best.name[1:]}),"
        f" {accuracy_of(best, 'finetune')}." in page(folders).text
    )


def test_missing_numbers_are_dashes(make_run: Any, page: Any) -> None:
    folder = make_run(done=1)
    line = json.loads((folder / "metrics.jsonl").read_text())
    line.update(
        forgetting={"safe": None},
        peak_memory=None,
        bytes_kept=None,
        pooled={"safe": float("nan"), "slow": 0.5},
    )
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    text = page([folder]).text
    assert "nan" not in text.lower() and "–" in text


def test_command_is_given_as_one_would_type_it(make_run: Any, page: Any) -> None:
    folder = make_run()
    edit(folder / "facts.json", command="safecl run glyphs 'name=two words'")
    assert "safecl run glyphs 'name=two words'" in page([folder]).text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("facts.json", "{"),
        ("facts.json", '{"method": "safe"}'),
        ("predictions.jsonl", '{"session": 1}\n'),
        ("failed.json", "[1, 2"),
        ("examples.json", '[{"file": 3}]'),
        ("examples.json", '[{"file": "../../secret.png", "label": "a"}]'),
        ("metrics.jsonl", '{"session": 1\n{"session": 2}\n'),
        ("metrics.jsonl", '{"session": "first"}\n'),
        ("losses.jsonl", '{"session": 1, "phase": "slow", "step": 1, "loss": "low"}\n'),
    ],
)
def test_damaged_file_is_named_in_one_sentence(
    make_run: Any, page: Any, name: str, content: str
) -> None:
    folder = make_run()
    (folder / name).write_text(content)
    with pytest.raises(SafeclError) as caught:
        page([folder])
    assert str(folder / name) in str(caught.value) and "\n" not in str(caught.value)


def test_a_damaged_summary_is_not_missed(make_run: Any, page: Any) -> None:
    whole = make_run("a", protocol="domain")
    damaged = make_run("b", protocol="domain")
    (damaged / "summary.json").write_text('{"final": {')
    assert page([whole]).text == page([damaged]).text


def test_missing_and_empty_folders_are_named(tmp_path: Path) -> None:
    with raises("report.run.missing", folder=tmp_path / "nowhere"):
        write_page([tmp_path / "nowhere"], tmp_path / "page.html", "T")
    (tmp_path / "empty").mkdir()
    with raises(
        "report.run.none", folder=tmp_path / "empty", why=re.compile(r"facts\.json is missing")
    ):
        write_page([tmp_path / "empty"], tmp_path / "page.html", "T")


def test_target_that_cannot_be_written_is_named(make_run: Any, tmp_path: Path) -> None:
    folder = make_run(done=1)
    (tmp_path / "file").write_text("")
    with raises("report.folder.not-made", folder=re.compile("file$")):
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
    with raises("file.not-written", reason="Permission denied"):
        write_page([folder], target, "New")
    assert target.read_bytes() == before and os.listdir(target.parent) == ["page.html"]


def test_accuracy_on_held_out_pictures_stands_beside_that_on_test_pictures(
    make_run: Any, page: Any
) -> None:
    text = page([make_run(sessions=3, held_out=True)]).text
    assert "Validation" in text and "87.0 ± " in text
    assert "on held-out training pictures" in text and "89.0" in text


def test_a_page_without_held_out_pictures_does_not_speak_of_validation(
    make_run: Any, page: Any
) -> None:
    text = page([make_run(sessions=2)]).text
    assert "Validation" not in text and "held-out" not in text


def test_presets_tell_runs_of_one_method_apart(make_run: Any, page: Any) -> None:
    text = page(
        [
            make_run(name, method="ranpac", sessions=2, preset=name)
            for name in ("ranpac", "ranpac-published")
        ]
    ).text
    assert "RanPAC (preset ranpac)" in text and "RanPAC (preset ranpac-published)" in text


def without_tests(folder: Path) -> Path:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        nothing = dict.fromkeys(line["pooled"])
        counts = [0] * len(line["test_counts"])
        accuracy = {output: [None] * len(counts) for output in nothing}
        line.update(
            test_counts=counts, accuracy=accuracy, pooled=nothing, seen=nothing, forgetting=nothing
        )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "predictions.jsonl").write_text("")
    return folder


def test_without_a_test_picture_no_empty_figure_is_drawn(make_run: Any, page: Any) -> None:
    seen = page([without_tests(make_run(sessions=2, examples=0))])
    for section in ("Accuracy as it learns", "What is left of each session", "At the end"):
        assert section not in seen.text
    assert "have the method's own accuracy" not in seen.text
    beside = page(
        [without_tests(make_run("a", sessions=2)), make_run("b", method="ranpac", sessions=2)]
    )
    # Two curves and bars of the other run; losses (of two phases and one).
    assert beside.tags["svg"] == 2 + 1 + (2 + 1)


def test_runs_are_compared_within_their_stream(make_run: Any, page: Any) -> None:
    folders = [
        make_run("a", sessions=2),
        make_run("b", method="ranpac", sessions=2),
        make_run("c", sessions=3),
    ]
    facts = json.loads((folders[2] / "facts.json").read_text())
    edit(folders[2] / "facts.json", stream={**facts["stream"], "name": "photos"})
    seen = page(folders)
    assert "3 runs on 2 streams." in seen.text
    assert "told apart at once" not in seen.text and "learned one by one" not in seen.text
    at_the_end = tables.at_the_end(all_series([read_run(folder) for folder in folders]))
    assert [row[0].text for row in at_the_end.rows if row[1].best] == ["SAFE (stream glyphs)"]


def accuracy_of(folder: Path, output: str) -> str:
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    return f"{100 * line['seen'][output]:.1f} %"


def test_long_names_are_short_in_tables_and_whole_in_their_titles(make_run: Any, page: Any) -> None:
    name = "".join(f"part{i}_" for i in range(40))
    seen = page([make_run(sessions=1, labels=[name, *"abcdefghi"])])
    table = seen.text[seen.text.index("Accuracy by class") :].partition("Test pictures, and")[0]
    assert short(name) in table and name not in table and name in seen.values("title")
    assert len(short(name)) == 40 and short("tiger") == "tiger"


def test_seeds_are_folded_into_one_with_its_spread(make_run: Any, page: Any) -> None:
    folders = [make_run(f"s{seed}", method="ranpac", seed=seed) for seed in (0, 1, 2)]
    finals = [
        json.loads((f / "metrics.jsonl").read_text().splitlines()[-1])["seen"]["ranpac"]
        for f in folders
    ]
    text = page(folders).text
    told = f"{100 * mean(finals):.1f} ± {100 * stdev(finals):.1f} %"
    assert f"RanPAC knows {told}, over 3 seeds." in text and "bands one standard deviation" in text
    assert "RanPAC (seed 0): settings, versions and hardware" in text and "seed 1)" not in text
    assert text.count("safecl run glyphs method=ranpac") >= 1


def test_notes_of_any_shape_are_told(make_run: Any, page: Any) -> None:
    folder = make_run(sessions=2)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[0]["notes"] = {
        "transfer": True,
        "pilot_gain": {"half": 0.125},
        "tried": [1, 0.5],
        "why": "too few",
    }
    lines[1]["notes"] = {"stepped_back": None, "going": False}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = page([folder]).text
    table = text[text.index("What the method decided") :]
    for word in (
        "Transfer loss",
        "used",
        "Pilot gain: half",
        "0.125",
        "1, 0.5",
        "too few",
        "Stepped back",
        "no",
    ):
        assert word in table


def test_config_commands_and_versions_can_be_copied(make_run: Any, page: Any) -> None:
    seen = page([make_run()])
    assert {"commands", "config-1", "facts-1"} <= set(seen.values("data-copies")) & set(
        seen.values("id")
    )
    for word in ("torch", "2.10.0", "0123abc+", "2 cores"):
        assert word in seen.text[seen.text.index("versions and hardware") :]


def test_many_runs_stand_below_each_other(make_run: Any) -> None:
    runs = [
        read_run(make_run(f"r{i}", method="ranpac", sessions=3, preset=f"p{i}")) for i in range(6)
    ]
    (table,) = tables.after_each_session(all_series(runs))
    assert (
        [c.name for c in table.columns] == ["Session", "1", "2", "3"]
        and len(table.rows) == 6
        and not table.grouped
    )
    assert table.rows[2][3].value == runs[2].metrics[2].pooled["ranpac"]


def test_cards_of_a_comparison_give_each_methods_own_sizes(make_run: Any, page: Any) -> None:
    folders = [make_run("a", sessions=2), make_run("b", method="ranpac", sessions=2)]
    lines = [json.loads(line) for line in (folders[1] / "metrics.jsonl").read_text().splitlines()]
    lines[-1].update(parameters={"learnable": 777, "stored": 1}, bytes_kept=5_000_000)
    (folders[1] / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cards = page(folders).text.partition("Accuracy as it learns")[0]
    assert cards.index("12,345 learnable · 2.4 MB kept") < cards.index(
        "777 learnable · 5.0 MB kept"
    )
    assert "learnable parameters" not in cards and "kept between sessions" not in cards
    alone = page(folders[:1]).text.partition("Accuracy as it learns")[0]
    assert (
        "12,345" in alone and "learnable parameters" in alone and "kept between sessions" in alone
    )
