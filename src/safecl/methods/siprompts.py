"""S-iPrompts: a prompt and a head for each domain, trained alone; the nearest centre tells a
picture's domain.
"""

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.errors import SafeclError
from safecl.heads.left_out import LeftOut
from safecl.heads.linear import LinearHead
from safecl.heads.protocol import PerClass, Trained
from safecl.methods.method import Batch, Fit
from safecl.methods.prompted import GrowingParameters, PromptMethod, uniform
from safecl.methods.settings.siprompts import SipromptsSettings
from safecl.methods.tuning import current_classes
from safecl.randomness import derive, generator
from safecl.streams.stream import Session

ABSENT = -1e4  # logit of a class that the chosen session did not bring


class SiPrompts(Trained, PerClass, PromptMethod):
    """Every session is a domain with a prompt, a head and centres of its own; only its own classes
    are its answers.
    """

    outputs = ("siprompts",)
    rows = ("members", "centres")
    settings: SipromptsSettings
    prompts: GrowingParameters

    def __init__(self, backbone: Backbone, settings: SipromptsSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.prompts = GrowingParameters()
        self.head = LinearHead(backbone.width, uniform=True)
        # the class of each row of the head
        self.members: Tensor = nn.Buffer(torch.zeros(0, dtype=torch.int64))
        self.centres: Tensor = nn.Buffer(torch.zeros(0, settings.centres, backbone.width))

    def learn(self, session: Session, fit: Fit) -> None:
        width = self.backbone.width
        t = len(self.prompts)
        random = generator(self.seed, "domain prompt", t)
        prompt = uniform(self.settings.length, width, generator=random, bound=width**-0.5)
        self.prompts.grow(prompt.to(self.backbone.device))
        super().learn(session, fit)
        features = F.normalize(fit.augmented_features("centres", session, self.backbone), dim=1)
        own = self.cluster(features.cpu().numpy(), derive(self.seed, "centres", t) % 2**32).to(
            self.centres
        )
        self.members = torch.cat([self.members, current_classes(self, session)])
        self.centres = torch.cat([self.centres, own[None]])

    def begin(self, session: Session) -> Tensor:
        """A block of the head is a session's, whether its classes are known or not."""
        current = current_classes(self, session)
        self.head.grow(len(current), generator(self.seed, "head", len(self.head.sizes)))
        self.head.train_only([-1])
        return current

    def cluster(self, features: np.ndarray, seed: int) -> Tensor:
        """K-means centres (K, d) of features (N, d); with fewer different features some stand
        twice.
        """
        count = min(self.settings.centres, len(np.unique(features, axis=0)))
        found = KMeans(count, n_init=10, random_state=seed).fit(features).cluster_centers_
        return torch.from_numpy(found[np.arange(self.settings.centres) % count])

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the session's own head, whose rows are the classes ``current``
        (sorted).
        """
        logits = self.head(self.terms(batch)[0])[:, -len(current) :]
        return {"cls": F.cross_entropy(logits, torch.searchsorted(current, batch.targets))}

    def terms(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return batch.features(self.network, prompts=self.prompts[-1]), {}

    def features(self, images: Tensor) -> Tensor:
        """With the prompt of the last session."""
        return self.network.features(images, prompts=self.prompts[-1])

    def nearest(self, bare: Tensor) -> Tensor:
        """The session whose centres hold the nearest, in L1, to the features ``bare`` (N, d) of the
        backbone: (N,).
        """
        features = F.normalize(bare, dim=1)
        distances: Tensor = torch.linalg.vector_norm(
            features[:, None, None] - self.centres, 1, dim=3
        )
        return distances.amin(dim=2).argmin(dim=1)

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        bare = self.backbone.features(images)
        prompts = torch.stack(list(self.prompts))[self.nearest(bare)]
        return {"backbone": bare, "prompted": self.network.features(images, prompts=prompts)}

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        chosen = self.nearest(features["backbone"])
        every = self.head(features["prompted"])
        logits = every.new_full((every.shape[0], len(self.classes)), ABSENT)
        parts = [torch.split(each, self.head.sizes, dim=-1) for each in (every, self.members)]
        for t, (own, columns) in enumerate(zip(*parts, strict=True)):
            logits[:, columns] = torch.where((chosen == t)[:, None], own, logits[:, columns])
        return {"siprompts": logits}

    def drop_class(self, index: int) -> None:
        raise SafeclError("forget.session-head", title=self.settings.title)
