"""All targets from nothing, in a reduced form; and at the paper's scale every run, on a few
pictures of each.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from safecl.atomic import read_json
from safecl.engine.identity import FILE
from safecl.errors import Stopped
from safecl.experiments.launch import launch
from safecl.experiments.reproduce import reproduce as module
from safecl.experiments.reproduce.plan import Job, make_job
from safecl.experiments.reproduce.probe import Probe, restore
from safecl.experiments.reproduce.reproduce import Made, Reproduction
from safecl.experiments.reproduce.targets import TARGETS, Preset, Scale, read_scale, read_target
from safecl.experiments.sweep.plan import Plan
from tests.conftest import raises

TINY_NETWORK = [
    "backbone.name=test_vit",
    "backbone.weights=random",
    "backbone.image_size=16",
    "device=cpu",
]
SHORT = [
    "ridge.size=30",
    "ridge.layers=1",
    "ridge.patches=false",
    "ridge.mirror=false",
    "train.epochs=1",
    "train.batch_size=8",
]
FEW = ["stream.classes=6", "stream.sessions=2", "stream.train=2", "stream.test=3"]
FAST = [*FEW, *SHORT, *TINY_NETWORK]


@pytest.fixture(autouse=True, scope="module")
def shallow(two_blocks: Path) -> None:
    """A third of the blocks, for there are many runs; a word that comes later counts."""
    FAST.append(f"backbone.weights={two_blocks}")


def in_this_process(plan: Plan, folder: Path, done: set[str], **_: Any) -> dict[str, str]:
    """In place of the sweep, which starts a process a run."""
    for cell in plan.cells:
        launch(cell.settings, folder / cell.name)
    return {}


def make_jobs(targets: Sequence[str], scale: Scale, preset: Preset, words: list[str]) -> list[Job]:
    return [make_job(read_target(name), scale, preset, words) for name in targets]


def work(folder: Path, targets: Sequence[str]) -> Reproduction:
    jobs = make_jobs(targets, read_scale("small"), "safe", FAST)
    return Reproduction(jobs, read_scale("small"), "safe", folder)


def at_the_papers_scale(folder: Path, targets: list[str], data: Path) -> Reproduction:
    words = [f"stream.root={data}", "ridge.size=16", "train.epochs=1", *TINY_NETWORK]
    jobs = make_jobs(targets, read_scale("paper"), "paper", words)
    return Reproduction(jobs, read_scale("paper"), "paper", folder)


def run(one: Reproduction, without: Mapping[str, set[str]] | None = None) -> list[Made]:
    gone = without or {}
    one.run(
        {name for some in gone.values() for name in some},
        on="local",
        jobs=1,
        gpus=1,
        show="quiet",
        command="",
    )
    return one.make(gone, lambda text: None)


def test_all_targets_are_made_from_nothing_shown_on_a_page_and_share_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, since all of it is asked of the same 42 runs."""
    monkeypatch.setattr(module, "run_cells", in_this_process)
    made = run(work(tmp_path, TARGETS))
    every_table_and_figure_is_there(tmp_path, made)
    the_page_shows_all_of_them_and_every_picture_has_an_alt_text(tmp_path, made)
    gamma_zero_is_the_sum_of_the_logits_and_its_default_is_the_run_itself(made)
    the_weights_are_those_of_the_answers(tmp_path, made)
    the_features_are_those_of_the_networks_of_a_finished_run(tmp_path)
    monkeypatch.undo()
    nothing_is_trained_twice(tmp_path, made, monkeypatch)


def every_table_and_figure_is_there(folder: Path, made: list[Made]) -> None:
    assert [one.name for one in made] == list(TARGETS)
    for one in made:
        name = one.name
        kinds = {Path(file).suffix for file in one.files}
        assert all((folder / "small-safe" / file).stat().st_size for file in one.files)
        if name.startswith("table-"):
            assert kinds == {".csv", ".tex", ".md"}
        elif name == "fig-overview":
            assert kinds == {".svg"}
        else:
            assert kinds >= {".svg", ".png"}, name
            assert Image.open(folder / "small-safe" / f"{name}.png").width > 300
        assert all(cell.mean is not None for line in one.lines for cell in line.cells), name


def the_page_shows_all_of_them_and_every_picture_has_an_alt_text(
    folder: Path, made: list[Made]
) -> None:
    page = (folder / "small-safe" / "index.html").read_text()
    pictures = re.findall(r'<img src="([^"]+)" alt="([^"]*)"', page)
    drawn = {
        base64.b64decode(data.removeprefix("data:image/svg+xml;base64,")) for data, _ in pictures
    }
    figures = [name for name in TARGETS if name.startswith("fig-")]
    assert drawn == {(folder / "small-safe" / f"{name}.svg").read_bytes() for name in figures}
    assert len(pictures) == len(figures) and all(len(alt) > 40 for _, alt in pictures)
    assert all(f'id="{name}"' in page for name in TARGETS) and "://" not in page
    for link in re.findall(r'<a href="([^"#]+)"', page):
        assert (folder / "small-safe" / link).is_file()
    assert all(sentence.split(":")[0] in page for one in made for sentence in one.left_out)


def gamma_zero_is_the_sum_of_the_logits_and_its_default_is_the_run_itself(made: list[Made]) -> None:
    found = {one.name: one for one in made}
    gamma = [cell.mean for cell in found["table-gamma"].lines[0].cells]
    assert gamma[2] == found["table-ablation"].lines[3].cells[0].mean
    assert gamma[0] == found["table-aggregation"].lines[1].cells[0].mean


def the_weights_are_those_of_the_answers(folder: Path, made: list[Made]) -> None:
    """Of the three classes of the second of two sessions, which are the late ones."""
    (cell,) = work(folder, ["fig-weights"]).cells
    lines = map(
        json.loads, (folder / "runs" / cell.name / "predictions.jsonl").read_text().splitlines()
    )
    late = [line["weights"]["fast"] for line in lines if line["session"] == 2]
    (told,) = [
        sentence
        for one in made
        if one.name == "fig-weights"
        for sentence in one.sentences
        if "late" in sentence
    ]
    assert len(late) == 9 and float(told.rpartition(" ")[2]) == pytest.approx(
        sum(late) / 9, abs=1e-3
    )


def the_features_are_those_of_the_networks_of_a_finished_run(folder: Path) -> None:
    """Of two sessions of three classes each, with three test pictures."""
    (cell,) = {
        entry.runs[0].name: entry.runs[0]
        for entry in work(folder, ["fig-tsne"]).jobs[0].entries[2:]
    }.values()
    probe = Probe(folder / "runs")
    labels, found = zip(
        *(probe.features(cell, name) for name in ("backbone", "slow", "fast")), strict=True
    )
    fit, tests = restore(
        folder / "runs" / cell.name,
        cell.settings,
        read_json(folder / "runs" / cell.name / FILE) or {},
    )
    views = torch.cat([test.plain(range(len(test)), fit.transform) for test in tests]).float() / 255
    with torch.no_grad():
        wanted = {
            "backbone": fit.method.backbone.features(views),
            **{name: fit.method.networks[name].features(views) for name in ("slow", "fast")},
        }
    assert [*map(str, tests[0].labels), *map(str, tests[1].labels)] == labels[0] and len(
        labels[0]
    ) == 18
    for features, name in zip(found, ("backbone", "slow", "fast"), strict=True):
        assert np.allclose(features, wanted[name], atol=1e-4)


def test_a_run_in_which_the_untuned_backbone_answers_is_drawn_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run_cells", in_this_process)
    monkeypatch.setattr("safecl.methods.beyond.untuned.MIN_PILOT_GAIN", 2.0)
    words = [*FAST, "stream.classes=8", "stream.train=4", "ridge.mirror=true"]
    jobs = make_jobs(["fig-tsne", "table-ablation"], read_scale("small"), "safe", words)
    figure, table = run(Reproduction(jobs, read_scale("small"), "safe", tmp_path))
    assert "fig-tsne.svg" in figure.files and not figure.left_out
    assert table.sentences == [
        "In 1 of 1 run the output slow is the untuned backbone's from session 2 on"
    ]
    cell = next(entry.runs[0] for entry in jobs[0].entries if entry.row.network == "slow")
    probe = Probe(tmp_path / "runs")
    method = probe._restored(cell)[0].method
    _, slow = probe.features(cell, "slow")
    _, plain = probe.features(cell, "backbone")
    assert method.untuned and slow.shape == plain.shape == (len(slow), method.backbone.width)  # type: ignore[attr-defined]
    assert not np.allclose(slow, plain, atol=1e-3)


def nothing_is_trained_twice(
    folder: Path, made: list[Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = work(folder, TARGETS)
    assert (
        len(one.cells)
        == len(list((folder / "runs").iterdir()))
        < sum(len(job.cells) for job in one.jobs)
    )
    assert one.done == {cell.name for cell in one.cells}
    monkeypatch.setattr("safecl.experiments.sweep.sweep.Local", None)  # no worker can be started
    before = {each.name: each for each in made}
    for each in run(work(folder, ["table-ablation", "table-gamma", "fig-weights"])):
        assert each.lines == before[each.name].lines


def test_what_was_not_run_is_said_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(plan: Plan, folder: Path, done: set[str], **_: Any) -> dict[str, str]:
        return {plan.cells[0].name: "The disk is full."}

    monkeypatch.setattr(module, "run_cells", failing)
    one = work(tmp_path, ["table-ablation"])
    (made,) = run(one, {"The weights are not there.": {one.cells[1].name}})
    assert made.left_out == [
        "preset=ranpac stream=glyphs seed=0: it failed: The disk is full.",
        "preset=safe stream=glyphs seed=0: The weights are not there.",
    ]
    assert one.cells[0].settings.preset == "ranpac" and all(
        cell.mean is None for line in made.lines for cell in line.cells
    )


def test_a_command_that_was_stopped_goes_on_with_the_runs_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def stopped_after_one(plan: Plan, folder: Path, done: set[str], **_: Any) -> dict[str, str]:
        for cell in plan.cells:
            if cell.name not in done:
                started.append(cell.name)
                launch(cell.settings, folder / cell.name)
                raise Stopped
        return {}

    monkeypatch.setattr(module, "run_cells", stopped_after_one)
    for left in (1, 0):
        with pytest.raises(Stopped):
            run(work(tmp_path, ["table-ablation"]))
        again = work(tmp_path, ["table-ablation"])
        assert len(again.cells) - len(again.done) == left
    (made,) = run(work(tmp_path, ["table-ablation"]))
    assert len(started) == len(set(started)) == 2 and made.left_out == []


def test_runs_on_pictures_that_were_replaced_are_refused(
    tmp_path: Path, class_folder: Any, paint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run_cells", in_this_process)
    data = class_folder({f"{part}/{label}": 2 for part in ("train", "test") for label in "ab"})
    stream = ["stream.kind=folder", f"stream.path={data}", "stream.step=1", "stream.cache=false"]
    own = [*stream, *SHORT, *TINY_NETWORK]
    scale = read_scale("small")
    streams = tuple(one.model_copy(update={"set": {}}) for one in scale.streams)
    scale = scale.model_copy(update={"streams": streams})

    def again() -> Reproduction:
        return Reproduction(
            make_jobs(["table-ablation"], scale, "safe", own), scale, "safe", tmp_path / "out"
        )

    run(again())
    assert len(again().done) == len(again().cells)
    paint(next((data / "test" / "b").iterdir()), 77)
    with raises(
        "sweep.folder.other-runs",
        lines=re.compile("other data: test pictures of session . have changed"),
    ):
        again()


def test_a_figure_of_datasets_names_pictures_that_are_missing_whatever_their_folder_is_called(
    tmp_path: Path,
) -> None:
    root = tmp_path / "weights"
    words = [f"stream.root={root}"]
    scale = read_scale("paper")
    one = Reproduction(make_jobs(["fig-datasets"], scale, "paper", words), scale, "paper", tmp_path)
    found = one.missing()
    assert len(found) == 7 and all(str(root) in sentence for sentence in found)


LARGE = (["table-sota"], ["table-pet"])  # most of the runs
SLOW = pytest.mark.slow


@pytest.mark.filterwarnings("ignore:.*here are:UserWarning")
@pytest.mark.parametrize(
    "targets",
    [
        pytest.param(["table-gamma"], id="one"),
        pytest.param(["table-sota"], id="main", marks=SLOW),
        pytest.param(["table-pet"], id="pet", marks=SLOW),
        pytest.param([name for name in TARGETS if [name] not in LARGE], id="others", marks=SLOW),
    ],
)
def test_at_the_papers_scale_every_run_ends_and_every_row_is_written(
    targets: list[str],
    tmp_path: Path,
    miniatures: Path,
    no_cache: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "run_cells", in_this_process)
    one = at_the_papers_scale(tmp_path, targets, miniatures)
    assert one.missing() == {} and len(one.cells) >= (1 if targets == ["table-gamma"] else 36)
    made = run(one)
    for each in made:
        assert all(cell.mean is not None for line in each.lines for cell in line.cells)
        if read_target(each.name).kind == "table":
            text = (one.place / f"{each.name}.csv").read_text()
            assert all(row.label in text for row in read_target(each.name).rows)
