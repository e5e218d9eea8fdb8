"""What all methods' settings have in common. Settings import nothing heavy: a wrong word is answered at once."""

from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import Field, PositiveFloat, PositiveInt

from safecl.settings import Settings

Kind: TypeAlias = Literal["no training", "first session", "prompts", "continual", "bound"]


class MethodSettings(Settings):
    """The settings of one method, and what tells people which method it is.

    A method ``x`` is the one in ``methods/x.py``, and its settings stand in ``methods/settings/x.py``.
    Groups that several methods have, such as ``pet`` and ``ridge``, can be set without ``method.`` in front.
    """

    title: ClassVar[str]
    paper: ClassVar[str]  # authors, title, venue
    kind: ClassVar[Kind]
    keeps: ClassVar[str] = "what its state_dict gives"  # what stays between sessions, in words
    trains: ClassVar[bool] = True  # whether the settings of ``train`` mean anything to it
    joint: ClassVar[bool] = False  # whether a run gives it all sessions of a stream as one
    quick: ClassVar[dict[str, Any]] = {}  # settings of a model whose first session should not take long

    name: str

    @property
    def kept_of_pictures(self) -> str:
        """What stays of the pictures of earlier sessions, in words."""
        return self.keeps


class AlignedSettings(MethodSettings):
    """Classifier alignment, as SLCA, SSIAT and later methods have it."""

    align_epochs: PositiveInt = Field(5, description="epochs of classifier alignment after every session but the first")
    align_samples: PositiveInt = Field(256, description="features drawn per class and epoch, and the batch size")
    align_lr: PositiveFloat = Field(0.01, description="learning rate of the alignment")
    spread: PositiveFloat = Field(1e-4, description="added to the diagonal of every covariance")
    scaled: bool = Field(True, description="draw around 0.9 to 1 times the mean of a class, the older the less")
