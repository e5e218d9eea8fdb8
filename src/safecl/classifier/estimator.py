"""The face of a scikit-learn estimator, without scikit-learn: it is slow to import, and whoever
asks for what only it can say has imported it.
"""

import inspect
from typing import Any, Self


class Estimator:
    """Parameters are those of ``__init__``, kept as they are given."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; none of them has any of its own, so ``deep`` changes nothing."""
        names = sorted(inspect.signature(type(self)).parameters)
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> Self:
        """Give parameters other values."""
        names = [*self.get_params()]
        for name, value in params.items():
            if name not in names:
                known = f"Valid parameters are: {names}."
                raise ValueError(f"Invalid parameter {name!r} for estimator {self}. {known}")
            setattr(self, name, value)
        return self

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Any:
        """Fit, and transform the same pictures."""
        fitted: Any = self
        return fitted.fit(X, y, **options).transform(X)

    def __sklearn_tags__(self) -> Any:
        from safecl.classifier.scikit import Tagged

        return Tagged().__sklearn_tags__()
