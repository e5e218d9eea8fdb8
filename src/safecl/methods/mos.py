"""MOS: a PET for each session, held near the mean of earlier ones; the class that it finds chooses
the PET anew.
"""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.left_out import LeftOut
from safecl.heads.linear import LinearHead
from safecl.heads.protocol import PerClass, Trained
from safecl.losses import local_cross_entropy
from safecl.methods.method import Batch, Fit, Group
from safecl.methods.settings.mos import MosSettings
from safecl.methods.tuna import SpecialistMethod
from safecl.methods.tuning import begin
from safecl.streams.stream import Session

MAX_CHOICES = 4  # of a PET for a picture
TEMPERATURE = 0.8  # of the loss that holds features apart


class MOS(Trained, PerClass, SpecialistMethod):
    """``prototypes``: class means under the first PET. ``owners`` (C,): the latest session that
    brought a class.
    """

    outputs = ("prototypes", "mos")
    rows = ("owners",)
    settings: MosSettings

    def __init__(self, backbone: Backbone, settings: MosSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed, LinearHead(backbone.width))
        self.gaussians.diagonal = settings.diagonal
        self.prototypes = CosineHead(backbone.width, scale=1.0, unit=False).requires_grad_(False)
        self.owners: Tensor = nn.Buffer(torch.zeros(0, dtype=torch.int64))

    def learn(self, session: Session, fit: Fit) -> None:
        s = self.settings
        current = begin(self, self.head, session)
        t = len(self.learners)
        mean = self.combined(partial(torch.mean, dim=0))
        learner = self.grow()
        after = (lambda: learner.interpolate(learner.tuning(), mean, s.pull)) if t else None
        slow = Group(
            [rows for rows in self.head.parameters() if rows.requires_grad], rate=s.head_rate
        )
        old = [c for c in range(self.gaussians.classes) if c not in current]
        loss = partial(self.loss, current, self.gaussians.means[old])
        targets, features = self.specialise(session, fit, loss, groups=[slow], after_step=after)
        self.prototypes.observe(
            fit.features(session, self.learners[0])[1] if t else features, targets
        )
        self.prototypes.imprint()
        self.owners = F.pad(self.owners, (0, len(self.classes) - len(self.owners)))
        self.owners[current] = t

    def loss(self, current: Tensor, means: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Local cross-entropy; and features are held apart from each other and from the ``means``
        of old classes.
        """
        features = batch.features(self.learners[-1])
        z = torch.cat([means.to(features), features])
        apart = F.cross_entropy(z @ z.T / TEMPERATURE, torch.arange(len(z), device=z.device))
        cls = local_cross_entropy(self.head(features), batch.targets, current)
        return {"cls": cls, "contrast": self.settings.contrast * apart}

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        """log (softmax z_a + softmax t z₀): class means choose a session's PET a, and its own
        answers another.
        """
        each = [expert.logits(features) for expert in self.experts().values()]
        first = found = self.prototypes(features["session 0"])
        for _ in range(MAX_CHOICES):
            found = self.chosen(each, self.owners[found.argmax(dim=1)])
        both = torch.logaddexp(found.log_softmax(dim=1), (len(each) * first).log_softmax(dim=1))
        return {"prototypes": first, "mos": both}
