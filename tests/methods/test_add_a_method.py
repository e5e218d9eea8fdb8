"""The method that docs/add-a-method.md builds works as it is printed there."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import safecl.methods
from safecl.backbone.backbone import Backbone
from safecl.methods.catalog import make_method, method_class, method_settings

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two files of the page, beside the package's own methods."""
    settings, algorithm, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    (tmp_path / "slda_settings.py").write_text(settings)
    (tmp_path / "slda.py").write_text(algorithm)
    monkeypatch.setattr(safecl.methods, "__path__", [*safecl.methods.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    method_settings.cache_clear()
    yield
    method_settings.cache_clear()
    for name in ("slda", "slda_settings"):
        sys.modules.pop(f"safecl.methods.{name}", None)
        if hasattr(safecl.methods, name):
            delattr(safecl.methods, name)


def test_it_is_found_learns_and_is_linear_discriminant_analysis(
    printed: None, backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    settings = method_settings()["slda"]
    assert method_class(settings).outputs == ("slda",)
    stream = make_stream([["a", "b"], ["c", "a"]], train=20)
    method = make_method(settings(pet={"kind": "none"}, shrinkage=1e-6), backbone)
    tools.teach(method, stream)
    pictures = [part.train for part in stream._parts]
    views = torch.cat([some.plain(range(len(some)), stream.transform) for some in pictures]).float() / 255
    labels = [label for some in pictures for label in some.labels]
    features = backbone.features(views).numpy().astype(np.float64)
    oracle = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3).fit(features, labels)
    guesses = [method.classes[i] for i in method.logits(views).argmax(dim=1).tolist()]
    assert (
        np.mean([guess == expected for guess, expected in zip(guesses, oracle.predict(features), strict=True)]) > 0.95
    )


def test_its_preset_is_one() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.S)
    values = yaml.safe_load(text)
    assert values["method"] == "slda" and values["variants"][0]["when"] == {"stream": "cifar100"}
