"""The command line: a wrong word is one sentence and exit code 2, never a traceback."""

from collections.abc import Callable
from pathlib import Path

import pytest

from safecl.__main__ import main as start
from safecl.cli import main as cli

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rum", "safe"], "rum"),
        (["lern", "x"], "Did you mean 'learn'? See safecl --help."),
        (["run"], "Missing argument 'config'. See safecl run --help."),
        (["run", "folder:photos"], "write safecl run safe stream=folder:photos."),
        (["run", "cifar100"], "write safecl run safe stream=cifar100."),
        (["run", "."], "write safecl run safe stream=folder:."),
        (
            ["run", "safe", "train.epochs=abc"],
            "train.epochs=abc is wrong: a whole number is needed.",
        ),
        (["run", "safe", "train.epochs=1.5"], "a whole number is needed."),
        (["run", "safe", "train.lr=abc"], "train.lr=abc is wrong: a number is needed."),
        (["run", "safe", "train.epochs=0"], "train.epochs=0 is wrong: it must be above 0."),
        (
            ["run", "safe", "method.cosine.reset_scale=maybe"],
            "method.cosine.reset_scale=maybe is wrong: true or false is needed.",
        ),
        (
            ["run", "safe", "stream=folder:x", "stream.step=abc"],
            "stream.step=abc is wrong: a whole number is needed.",
        ),
        (["run", "safe", "stream=csv:nothing.csv"], "There is no table nothing.csv"),
        (["demo", "--serve", "seed=1"], "Settings have no effect with --serve; omit them."),
        (
            ["demo", "method=slca"],
            "The demo compares SAFE, RanPAC and fine-tuning; safecl run METHOD runs another",
        ),
        (["demo", "method.nosuch=1"], "There is no setting 'method.nosuch'"),
        (["demo", "--port", "9000"], "--port has no effect without --serve; give both."),
        (["show"], "RUN"),
        (["compare"], "RUN"),
        (["run", "safe", "--nosuch"], "--nosuch"),
        (["data", "check", "folder:x", "--workers", "2"], "--workers"),
        (
            ["sweep", "compare", "--on", "rya"],
            "'rya' is not one of 'local', 'ray'. See safecl sweep --help.",
        ),
        (["sweep", "compare", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["sweep", "compare", "--gpus", "3"], "Invalid value for '--gpus'"),
        (
            ["reproduce", "all", "--on", "cluster"],
            "'cluster' is not one of 'local', 'ray'. See safecl reproduce --help.",
        ),
        (["run", "saef"], "did you mean 'safe'?"),
        (["run", "safe", "pett=ssf"], "did you mean 'pet'?"),
        (["run", "safe", "pet=sff"], "did you mean 'ssf'?"),
        (["run", "safe", "seed"], "key=value"),
        (["run", "safe", "stream=folder:"], "after the colon"),
        (
            ["run", "safe", "stream="],
            "stream= has no value; for example stream=folder:photos, or omit the word",
        ),
        (["run", "safe", "seed="], "write seed=null for none"),
        (
            ["run", "safe", "train.accumulate=1000"],
            "train.accumulate=1000 must divide train.batch_size=48",
        ),
        (["run", "safe", "ridge.size=1000000"], "set ridge.size to"),
        (
            ["run", "safe", "pet=vpt_deep", "backbone=test_resnet", "backbone.weights=random"],
            "The PET vpt_deep does not go with ResNet of timm; choose one of adapter, ssf",
        ),
        (["info", "--keys", "saef"], "did you mean 'safe'?"),
        (["info", "safe"], "safecl info --keys safe"),
        (["data", "check", "glyphs"], "nothing to check"),
    ],
)
def test_a_wrong_word_is_one_sentence(words: list[str], sentence: str, command: Command) -> None:
    code, _, said = command(*words)
    assert code == 2 and said.startswith("safecl: ") and len(said.splitlines()) == 1
    assert sentence.lower() in said.lower()


def test_every_command_has_an_example() -> None:
    for app in (cli.app, cli.data_app):
        for command in app.registered_commands:
            assert command.callback is not None
            assert "Example:" in (command.callback.__doc__ or ""), command.callback.__name__


@pytest.mark.parametrize("words", [[], ["data"]])
def test_without_a_word_there_is_help_and_no_error(words: list[str], command: Command) -> None:
    code, said, error = command(*words)
    assert code == 0 and "Usage" in said and error == ""


def test_report_writes_the_page_and_on_demand_figures_and_tables(
    tmp_path: Path, write_run: Callable[..., Path], command: Command
) -> None:
    run = write_run(tmp_path / "run")
    page = tmp_path / "page.html"
    files = tmp_path / "figures"
    code, said, _ = command("report", str(run), "--page", str(page), "--files", str(files))
    assert code == 0 and page.is_file()
    written = {path.suffix for path in files.iterdir()}
    assert written == {".svg", ".png", ".csv", ".tex"}
    assert f"{len(list(files.iterdir()))} files in {files}" in said


def test_an_interrupt_of_a_command_is_said(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typer makes an exit code of it."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("safecl.cli.info.print_methods", interrupted)
    code, out, err = command("methods")
    assert (code, out) == (
        130,
        "",
    ) and err.strip() == "safecl: stopped; what was saved before is intact."


def test_an_interrupt_of_the_imports_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)
    with pytest.raises(SystemExit) as stopped:
        start()
    assert stopped.value.code == 130 and capsys.readouterr().err == "safecl: stopped.\n"
