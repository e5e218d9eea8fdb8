"""What ``safecl serve`` refuses is one sentence, before anything heavy is loaded."""

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from safecl.cli import serve
from safecl.cli.main import main


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, new_model: Any, lesson: Any) -> Path:
    path = tmp_path_factory.mktemp("model") / "pets.safecl"
    made = new_model("simplecil")
    made.learn(*lesson("ab", 2))
    made.save(path)
    return path


def refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> str:
    monkeypatch.setattr(sys, "argv", ["safecl", "serve", *words])
    with pytest.raises(SystemExit) as end:
        main()
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.count("\n") == 1 and "Traceback" not in error, error
    return error


def test_what_cannot_be_served_is_a_sentence(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "pets.safecl"
    twin.write_bytes(model.read_bytes())
    assert "There is no model nowhere" in refused(capsys, monkeypatch, "nowhere")
    for place in ("there is no folder/new.safecl", str(tmp_path / "none" / "new.safecl")):
        assert "There is no folder" in refused(capsys, monkeypatch, place)
    new = str(tmp_path / "new.safecl")
    assert "new is not there yet" in refused(capsys, monkeypatch, new, "--ray")
    assert "Two models are called pets" in refused(
        capsys, monkeypatch, str(model), str(tmp_path / "pets.safecl")
    )
    assert "Two models are called pets" in refused(capsys, monkeypatch, str(model), str(twin))
    assert "65535" in refused(capsys, monkeypatch, str(model), "--port", "70000")
    assert "--ray" in refused(capsys, monkeypatch, str(model), "--replicas", "2")
    assert "A token has 8" in refused(capsys, monkeypatch, str(model), "--token", "short")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot listen on 127.0.0.1, port {port}" in refused(
            capsys, monkeypatch, str(model), "--port", port
        )
    assert "cannot listen on no.such.host" in refused(
        capsys, monkeypatch, str(model), "--host", "no.such.host.invalid"
    )


def test_without_the_extra_its_name_is_said(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    assert "pip install 'safecl[serve]'" in refused(capsys, monkeypatch, str(model))
