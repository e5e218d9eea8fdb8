"""The face of scikit-learn: what an estimator has beside what it learns and answers."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from safecl.classifier.model import Model
from safecl.errors import SafeclError
from safecl.streams.sources.arrays import plain_label


class Estimator(ABC):
    """An estimator whose state is one immutable model, or nothing yet."""

    _estimator_type = "classifier"

    @abstractmethod
    def learn(self, data: Any, labels: Sequence[Any] | None = None, *, again: bool = False) -> Any:
        """Learn a session; a failure leaves the model as it was."""

    def fit(self, X: Any, y: Sequence[Any] | None = None) -> Self:
        """Forget everything and learn these pictures."""
        before, self._model = self._model, None
        try:
            self.learn(X, y, again=True)
        except BaseException:
            self._model = before
            raise
        return self

    def partial_fit(self, X: Any, y: Sequence[Any] | None = None, classes: Sequence[Any] | None = None) -> Self:
        """Learn these pictures as a session; ``classes`` is not needed and only checked."""
        if classes is not None and y is not None:
            allowed = {plain_label(label, "classes") for label in classes}
            for label in y:
                if plain_label(label, "y") not in allowed:
                    raise ValueError(f"y holds {label!r}, which is not in classes")
        self.learn(X, y, again=True)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments it was made with."""
        return {name: getattr(self, name) for name in _arguments(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Change arguments. What decides what a model computes takes effect when it is fitted anew."""
        for name, value in params.items():
            if name not in _arguments(type(self)):
                raise ValueError(f"Invalid parameter {name!r} for {type(self).__name__}.")
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        inputs = InputTags(two_d_array=False, three_d_array=True)
        target = TargetTags(required=True)
        return Tags("classifier", target, classifier_tags=ClassifierTags(), input_tags=inputs, non_deterministic=False)

    # A property, so that ``clone`` and the estimator checks see no public attribute before anything was learned.
    @property
    def _model(self) -> Model | None:
        found: Model | None = self.__dict__.get("_trained")
        return found

    @_model.setter
    def _model(self, model: Model | None) -> None:
        self.__dict__["_trained"] = model

    @property
    def _fitted(self) -> Model:
        if self._model is None:
            raise _not_fitted()
        return self._model


def _arguments(kind: type) -> list[str]:
    return [name for name in inspect.signature(kind.__init__).parameters if name != "self"]  # type: ignore[misc]


def _not_fitted() -> Exception:
    try:
        from sklearn.exceptions import NotFittedError
    except ImportError:
        return SafeclError("This model has learned nothing yet; call learn first.")

    class NothingLearned(NotFittedError, SafeclError):  # type: ignore[misc]
        """Nothing was learned yet."""

    return NothingLearned("This model has learned nothing yet; call learn first.")
