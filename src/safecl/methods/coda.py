"""CODA-Prompt: a prompt is the sum of components, weighted by how well the attended query fits
their keys.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.methods.method import Batch, Fit
from safecl.methods.prompted import GrowingParameters, PromptMethod
from safecl.methods.settings.coda import CodaSettings
from safecl.randomness import generator
from safecl.streams.stream import Session


class Components(nn.Module):
    """By session, for B blocks: components (B, M, L, d), keys (B, M, d) and attention vectors (B,
    M, d).
    """

    def __init__(self) -> None:
        super().__init__()
        self.components, self.keys, self.attention = (GrowingParameters() for _ in range(3))

    def forward(self, query: Tensor) -> Tensor:
        """Σ_m cos(q ⊙ a_m, k_m) p_m over the components of all sessions: (N, d) → (N, B, L, d)."""
        components, keys, attention = (
            torch.cat([*own], dim=1) for own in (self.components, self.keys, self.attention)
        )
        # As matrix products: q ⊙ a would be N · B · M · d numbers.
        products = torch.einsum("nd,bmd->nbm", query, attention * F.normalize(keys, dim=-1))
        squares = torch.einsum("nd,bmd->nbm", query.square(), attention.square())
        weights = products / squares.clamp(min=1e-24).sqrt()
        return torch.einsum("nbm,bmld->nbld", weights, components)


class CODAPrompt(PromptMethod):
    """Components are added in every session, where the original divides a fixed number among the
    sessions to come.

    They start orthonormal to each other and to the earlier ones, which are not trained any more.
    """

    outputs = ("coda",)
    settings: CodaSettings
    prompts: Components

    def __init__(self, backbone: Backbone, settings: CodaSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.prompts = Components()
        # counts as if it were made
        torch.empty(settings.components, settings.length, backbone.width, device="meta")

    def learn(self, session: Session, fit: Fit) -> None:
        s = self.settings
        width = self.backbone.width
        prompts = self.prompts
        blocks = min(s.blocks, self.backbone.blocks)
        t = len(self.prompts.keys)
        for name, own, shape in (
            ("components", prompts.components, (s.length, width)),
            ("keys", prompts.keys, (width,)),
            ("attention", prompts.attention, (width,)),
        ):
            random = generator(self.seed, "coda", name, t)
            drawn = torch.randn(blocks, s.components, *shape, generator=random).flatten(2)
            before = torch.cat(
                [drawn[:, :0], *(each.detach().flatten(2).cpu() for each in own)], dim=1
            )
            fresh = torch.stack(
                [orthonormal(new, old) for new, old in zip(drawn, before, strict=True)]
            )
            own.grow(fresh.reshape(blocks, s.components, *shape).to(self.backbone.device))
        super().learn(session, fit)

    def terms(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return batch.gather(batch.through(self.prompted, batch.through(self.query))), {}

    def features(self, images: Tensor) -> Tensor:
        return self.prompted(images, self.query(images))

    def prompted(self, images: Tensor, query: Tensor) -> Tensor:
        prompts = self.prompts(query)
        keys, values = prompts.chunk(2, dim=2)
        prefixes = {block: (keys[:, block], values[:, block]) for block in range(prompts.shape[1])}
        return self.network.features(images, prefixes=prefixes)


def orthonormal(vectors: Tensor, before: Tensor) -> Tensor:
    """``vectors`` (M, d) made orthonormal to each other and to ``before`` (K, d) while there are
    dimensions left.
    """
    fresh = F.normalize(vectors.double(), dim=1)
    q, r = torch.linalg.qr(torch.cat([before.double(), fresh]).T)
    found = (q * r.diagonal().sign()).T[len(before) :]
    return torch.cat([found, fresh[len(found) :]]).to(vectors)
