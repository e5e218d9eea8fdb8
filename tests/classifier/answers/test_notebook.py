"""What a notebook shows of a model: the classes by name, what is kept of them, and no markup of
theirs.
"""

from collections.abc import Callable
from typing import Any

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.modelfile.history import counts


def test_a_cell_shows_every_class_with_its_pictures(
    new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Any
) -> None:
    model = new_model(thumbnails=True)
    assert model._repr_html_().startswith("&lt;ContinualClassifier")
    model.learn(*lesson(["cat", "<b>"], 6))
    model.save(tmp_path / "m.safecl")
    for each in (model, ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")):
        html = each._repr_html_()
        assert html.count("<img ") == 4 and html.count("data:image/jpeg;base64,") == 4
        assert "&lt;b&gt;" in html and "<b>" not in html and "<script" not in html
        assert all(f">{n}</td>" in html for n in counts(each._fitted.header).values())
    assert "Leave-one-out accuracy" in html


def test_a_cell_shows_the_first_of_many_classes(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    model = new_model(method="ranpac", pet="none")
    model.learn(*lesson(range(40), 2))
    html = model._repr_html_()
    assert html.count("<tr>") == 31 and "and 10 more" in html and "<img" not in html
