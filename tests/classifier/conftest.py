"""A model that many tests ask and none changes."""

from collections.abc import Callable
from typing import Any

import pytest

from safecl.classifier.classifier import ContinualClassifier


@pytest.fixture(scope="session")
def taught(
    new_model: Callable[..., ContinualClassifier], lesson: Callable[..., Any]
) -> ContinualClassifier:
    """SAFE after two sessions, abcd and ef; what changes it is done to
    ``ContinualClassifier.of(taught._fitted)``.
    """
    model = new_model()
    model.learn(*lesson("abcd"))
    model.learn(*lesson("ef"))
    return model
