"""What each cell of a table runs."""

from pathlib import Path
from typing import get_args

import pytest

from safecl.experiments.reproduce.plan import Entry, Job, make_job
from safecl.experiments.reproduce.targets import TARGETS, Preset, read_scale, read_target
from safecl.experiments.sweep.plan import Cell
from safecl.settings import flatten
from safecl.streams.datasets import DATASETS
from safecl.streams.settings import DATASETS as KNOWN
from safecl.streams.settings import DatasetSettings, GlyphsSettings
from tests.conftest import raises

IN1K = "vit_base_patch16_224.augreg_in21k_ft_in1k"
IN21K = "vit_base_patch16_224.augreg_in21k"
# Backbone and PET of the paper's main table, the sessions of each dataset.
MAIN = {
    "CIFAR": ("cifar100", IN21K, "adapter", 10),
    "IN-R": ("imagenet-r", IN1K, "ssf", 10),
    "IN-A": ("imagenet-a", IN1K, "ssf", 10),
    "CUB": ("cub", IN1K, "adapter", 10),
    "OB": ("omnibenchmark", IN21K, "vpt_deep", 10),
    "VTAB": ("vtab", IN1K, "ssf", 5),
}
EPOCHS = {
    "safe": 20,
    "ranpac": 20,
    "aper": 20,
    "ease": 20,
    "ssiat": 20,
    "slca": 50,
    "l2p": 5,
    "dualprompt": 5,
    "coda": 20,
}
OTHER_EPOCHS = {
    ("CIFAR", "slca"): 20,
    ("IN-R", "l2p"): 10,
    ("IN-R", "dualprompt"): 50,
    ("IN-R", "coda"): 50,
    ("VTAB", "ease"): 45,
}

PRESETS: tuple[Preset, ...] = get_args(Preset)


def job(name: str, scale: str = "paper", preset: Preset = "paper", **options: object) -> Job:
    folder = Path("given") if scale == "assets" else None
    return make_job(read_target(name), read_scale(scale, folder), preset, **options)  # type: ignore[arg-type]


def entry(one: Job, row: str, column: str = "Final") -> Entry:
    return next(
        each for each in one.entries if (each.row.label, each.column.label) == (row, column)
    )


def cell(
    name: str, row: str, column: str = "Final", scale: str = "paper", preset: Preset = "paper"
) -> Cell:
    return entry(job(name, scale, preset), row, column).runs[0]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_cell_of_the_main_table_has_the_papers_backbone_pet_sessions_and_epochs(
    preset: Preset,
) -> None:
    found = job("table-sota", preset=preset)
    assert len(found.cells) == len(found.entries) == 54 and not found.left_out
    for each in found.entries:
        dataset, backbone, pet, sessions = MAIN[each.column.label]
        settings = each.runs[0].settings
        assert isinstance(settings.stream, DatasetSettings) and settings.stream.name == dataset
        assert DATASETS[dataset].classes // DATASETS[dataset].step == sessions
        assert settings.backbone.name == backbone
        method = settings.method.name
        ours = preset == "safe" and method in ("safe", "ranpac")
        assert settings.backbone.normalisation == (
            "auto" if ours else "imagenet" if method == "slca" else "none"
        )
        assert settings.train.epochs == OTHER_EPOCHS.get(
            (each.column.label, method), EPOCHS[method]
        )
        if method in ("safe", "ranpac"):
            assert settings.pet == pet
        if each.row.label == "SAFE":
            assert (
                settings.preset == preset
                and settings.train.batch_size == 48
                and settings.train.lr == 0.01
            )


def test_the_presets_have_the_values_that_they_stand_for() -> None:
    paper, published = (
        cell("table-ablation", "Slow learner", preset=p).settings.method for p in PRESETS[1:]
    )
    printed = paper.transfer
    released = published.transfer
    assert (
        printed.lambda_diag,
        printed.lambda_rdn,
        paper.guide.lambda_cos,
        paper.answer.gamma,
    ) == (0.1, 100, 50, 1)
    assert (released.lambda_diag, released.lambda_rdn, released.reduction) == (0.01, 10, "sum")


def test_ablations_differ_from_safe_in_what_their_row_says_and_nothing_else() -> None:
    safe = flatten(cell("table-ablation", "Slow and fast learner (SAFE)").settings.model_dump())
    changes = {
        ("table-slow", "Baseline + FA", "Final"): {"transfer.loss": "fa"},
        ("table-fast", "Fine-tuned with L_cos", "Final"): {"guide.lambda_cross": 0},
        ("table-teacher", "PTM", "Final"): {"guide.teacher": "ptm"},
        ("table-aggregation", "Maximum of logits", "Final"): {"answer.aggregation": "max"},
        ("table-lambda-cos", "Fast learner", "10"): {"guide.lambda_cos": 10},
        ("fig-sensitivity", "10", "500"): {"transfer.lambda_diag": 10, "transfer.lambda_rdn": 500},
    }
    for place, change in changes.items():
        assert flatten(cell(*place).settings.model_dump()) == {
            **safe,
            **{f"method.{key}": value for key, value in change.items()},
        }


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "scale", ["small", *(pytest.param(s, marks=pytest.mark.slow) for s in ("assets", "paper"))]
)
def test_targets_share_their_runs(scale: str, preset: Preset) -> None:
    jobs = {
        name: {cell.name for cell in job(name, scale, preset, repeat=1).cells} for name in TARGETS
    }
    assert len(set.union(*jobs.values())) < 0.8 * sum(map(len, jobs.values()))
    for name in ("table-ablation", "fig-parameters", "fig-tsne", "fig-sessions", "fig-weights"):
        assert jobs[name] <= jobs["table-sota"]


def test_the_default_of_a_sweep_over_a_setting_is_the_run_of_the_main_table() -> None:
    safe = cell("table-ablation", "Slow learner").name
    assert cell("table-lambda-cos", "Fast learner", "50").name == safe
    assert cell("fig-sensitivity", "0.1", "100").name == safe
    assert {each.name for each in job("table-gamma").cells} == {safe}


def test_a_stream_that_stands_for_several_datasets_is_one_column_and_the_others_are_named() -> None:
    found = job("table-sota", "small", "safe")
    assert list(found.streams) == ["CIFAR"]
    assert found.left_out == [
        "IN-R, IN-A, CUB, OB, VTAB: glyphs stands for it as well, in the column CIFAR"
    ]
    assets = job("table-sota", "assets", "safe")
    assert list(assets.streams) == ["CIFAR", "CUB"]
    assert "OB, VTAB: nothing stands for it at this scale" in assets.left_out


def test_rows_and_columns_that_a_scale_leaves_out_are_named() -> None:
    found = job("fig-sensitivity", "small", "safe")
    assert len(found.entries) == 9 and found.left_out == [
        "λ_diag 0.5, 10; λ_rdn 10, 500: left out at this scale"
    ]
    assert entry(found, "0.1", "100").paper == 65.44


@pytest.mark.parametrize("preset", PRESETS)
def test_at_the_small_scale_every_session_trains_three_epochs(preset: Preset) -> None:
    for one in (each for name in TARGETS for each in job(name, "small", preset).cells):
        train = one.settings.train
        assert (train.epochs, train.later_epochs, train.later_horizon, train.milestones) == (
            3,
            None,
            None,
            (),
        )


@pytest.mark.parametrize("preset", PRESETS)
def test_with_given_weights_every_session_trains_twenty_epochs(preset: Preset) -> None:
    for one in (
        each
        for name in ("table-sota", "table-ablation")
        for each in job(name, "assets", preset).cells
    ):
        train = one.settings.train
        assert (train.epochs, train.later_epochs, train.later_horizon) == (20, None, None)


def test_domain_incremental_targets_run_on_domains() -> None:
    small = cell("table-domainnet", "SAFE", scale="small", preset="safe").settings.stream
    assert isinstance(small, GlyphsSettings) and small.protocol == "domain"
    assert {one.settings.stream.title for one in job("table-domainnet").cells} == {"domainnet"}


def test_words_go_over_everything_and_seeds_repeat() -> None:
    found = job("table-ablation", words=["train.epochs=7", "ridge.size=64"], repeat=3)
    assert len(found.cells) == 6 and {one.settings.train.epochs for one in found.cells} == {7}
    orders = [one.settings.stream.order_seed for one in entry(found, "Slow learner").runs]  # type: ignore[union-attr]
    assert orders == [1993, 1996, 1997]


def test_wrong_words_seeds_scales_and_folders_are_one_sentence() -> None:
    with raises("name.unknown.near", near="train.epochs"):
        job("table-ablation", words=["train.epoch=7"])
    with raises("reproduce.seeds.range", repeat=4, count=3):
        job("table-ablation", repeat=4)
    with raises("name.unknown.near", near="small"):
        read_scale("smal")
    with raises("reproduce.scale.no-folder", name="assets"):
        read_scale("assets")
    with raises("reproduce.scale.folder-idle", name="small"):
        read_scale("small", Path("given"))


def test_every_dataset_of_the_paper_is_at_the_papers_scale() -> None:
    scale = read_scale("paper")
    assert [one.name for one in scale.streams] == list(KNOWN[:7])
