"""What is of scikit-learn's own kinds, imported when it is needed."""

from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.exceptions import NotFittedError

from safecl.errors import SafeclError


class Tagged(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Has the tags of a classifier that also transforms."""


class NothingLearned(SafeclError, NotFittedError):  # type: ignore[misc]
    """Nothing was learned yet."""
