"""APER (ADaM): adapt once in the first session; then prototypes of the PTM's and the adapted
features side by side.
"""

from safecl.backbone.backbone import Backbone
from safecl.learner import Learner
from safecl.methods.method import Fit
from safecl.methods.settings.aper import AperSettings
from safecl.methods.simplecil import SimpleCIL
from safecl.methods.tuning import tune
from safecl.streams.stream import Session


class APER(SimpleCIL):
    """f(x) = [φ_PTM(x); φ_adapted(x)]; a class is its mean f, compared by cosine over all 2d
    numbers.
    """

    outputs = ("aper",)
    settings: AperSettings

    def __init__(self, backbone: Backbone, settings: AperSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed, networks=2)
        self.adapted = Learner(backbone, settings.pet, seed)

    def compared(self) -> dict[str, Learner | Backbone]:
        return {"backbone": self.backbone, "adapted": self.adapted}

    def learn(self, session: Session, fit: Fit) -> None:
        if not self.sessions:
            tune(self, self.adapted, self.settings.scale, session, fit)
        super().learn(session, fit)
