"""The method that docs/add-a-method.md builds works as it is printed there."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import safecl.methods.settings
from safecl.backbone.backbone import Backbone
from safecl.engine.settings import TrainSettings
from safecl.experiments.config import read_source
from safecl.methods.catalog import method_class, method_settings

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.S | re.M)


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two files of the page, beside the package's own methods."""
    settings, algorithm, _ = BLOCKS
    for package, text in ((safecl.methods, algorithm), (safecl.methods.settings, settings)):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / "slda.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    importlib.invalidate_caches()
    method_settings.cache_clear()
    yield
    method_settings.cache_clear()
    for package in (safecl.methods, safecl.methods.settings):
        sys.modules.pop(f"{package.__name__}.slda", None)
        if hasattr(package, "slda"):
            delattr(package, "slda")


def test_it_is_found_and_its_printed_test_passes(
    printed: None, backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    assert method_class(method_settings()["slda"]).outputs == ("slda",)
    namespace: dict[str, Any] = {}
    exec(compile(BLOCKS[2], str(PAGE), "exec"), namespace)
    (test,) = (value for name, value in namespace.items() if name.startswith("test_"))
    test(backbone, make_stream, tools)


def test_it_runs_without_a_preset(printed: None) -> None:
    assert read_source("slda") == {"method": "slda"}


def test_its_preset_is_one(printed: None) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.S)
    values = yaml.safe_load(text)
    assert method_settings()["slda"](**values["method"]).model_dump()["shrinkage"] == 1e-4
    assert TrainSettings(**values["train"]).epochs == 20
    assert values["variants"][0]["when"] == {"stream": "cifar100"}
