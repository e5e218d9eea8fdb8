"""What all methods' settings have in common. Settings import nothing heavy: a wrong word is
answered at once.
"""

from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import Field, PositiveFloat, PositiveInt

from safecl.errors import SafeclError
from safecl.pet.settings import NoPetSettings
from safecl.settings import Idle, Settings, With

TUNED = With("pet.kind", ("adapter",), unless=("none",))
MACHINE = ("graphs", "save_seconds")  # settings of training that say how, and change nothing
Kind: TypeAlias = Literal["no training", "first session", "prompts", "continual", "bound"]


class MethodSettings(Settings):
    """The settings of one method, and what tells people which method it is.

    A method ``x`` is the one in ``methods/x.py``, and its settings stand in
    ``methods/settings/x.py``. Groups that several methods have, such as ``pet`` and ``ridge``, can
    be set without ``method.`` in front.
    """

    title: ClassVar[str]
    paper: ClassVar[str]  # authors, title, venue
    kind: ClassVar[Kind]
    keeps: ClassVar[str] = "what its state_dict gives"  # what stays between sessions, in words
    trains: ClassVar[bool] = True  # whether the settings of ``train`` mean anything to it
    tunes: ClassVar[bool] = False  # whether it trains its PET and nothing else that it keeps
    joint: ClassVar[bool] = False  # whether a run gives it all sessions of a stream as one
    quick: ClassVar[
        dict[str, Any]
    ] = {}  # settings of a model whose first session should not take long

    name: str

    def idle_outside(self, key: str) -> Idle | None:
        """Why a dotted ``key`` of the training or of the crops means nothing to it, if so."""
        group, _, name = key.partition(".")
        # a ridge head may mirror
        read = ("scale", "ratio") if hasattr(self, "ridge") else ("scale", "ratio", "flip")
        crops = group == "stream" and name in read
        bare = self.tunes and getattr(self, "pet", None) == NoPetSettings()
        if not crops and (group != "train" or name in MACHINE):
            return None
        if not self.trains or bare:
            other, why = ("method.pet.kind", " without a PET") if bare else ("method.name", "")
            return Idle(
                key,
                other,
                SafeclError("setting.no-training", title=self.title, why=why, key=key),
            )
        if name.startswith("later_") and (self.joint or self.kind == "first session"):
            error = SafeclError("setting.no-later-training", title=self.title, key=key)
            return Idle(key, "method.name", error)
        return None

    def before_tuning(self) -> "MethodSettings | None":
        """The settings of a method that answers in its place until something is tuned, by sums over
        untuned features; None: what it trains answers.
        """
        return None if self.trains else self

    def passes(self, first: bool) -> float:
        """How often the pictures of a session are trained on in an epoch, all phases together."""
        return 1.0

    @property
    def floors(self) -> tuple[str, ...]:
        """The files that answer its questions otherwise, uppermost first: see ``floors.py``."""
        return ()

    @property
    def kept_of_pictures(self) -> str:
        """What stays of the pictures of earlier sessions, in words."""
        return self.keeps


class AlignedSettings(MethodSettings):
    """Classifier alignment, as SLCA, SSIAT and later methods have it."""

    align_epochs: PositiveInt = Field(
        5, description="epochs of classifier alignment after every session but the first"
    )
    align_samples: PositiveInt = Field(
        256, description="features drawn per class and epoch, and the batch size"
    )
    align_lr: PositiveFloat = Field(0.01, description="learning rate of the alignment")
    spread: PositiveFloat = Field(1e-4, description="added to the diagonal of every covariance")
    scaled: bool = Field(
        True, description="draw around 0.9 to 1 times the mean of a class, the older the less"
    )
