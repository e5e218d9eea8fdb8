"""DualPrompt: prefixes of attention that all sessions share, and one expert a session, which is
found by its key.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.backbone.layers import Prefix
from safecl.methods.method import Batch, Fit
from safecl.methods.prompted import (
    GrowingParameters,
    KeyedPrompts,
    PromptMethod,
    most_frequent,
    uniform,
)
from safecl.methods.settings.dualprompt import DualpromptSettings
from safecl.randomness import generator
from safecl.streams.stream import Session


class DualPrompts(KeyedPrompts):
    """``general`` (G, 2, L, d): keys and values of G blocks. ``experts``: (E, 2, L, d) a session;
    ``keys``: (d,).
    """

    def __init__(self, general: Tensor) -> None:
        super().__init__()
        self.general = nn.Parameter(general)
        self.experts = GrowingParameters()
        self.keys = GrowingParameters()


class DualPrompt(PromptMethod):
    """An expert is added in every session, where the original has as many as there will be
    sessions.

    It starts as the one before. The last block of the backbone stands for those that it does not
    have.
    """

    outputs = ("dualprompt",)
    settings: DualpromptSettings
    prompts: DualPrompts

    def __init__(self, backbone: Backbone, settings: DualpromptSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        last = backbone.blocks - 1
        self.g_blocks, self.e_blocks = (
            sorted({min(block, last) for block in blocks})
            for blocks in (settings.g_blocks, settings.e_blocks)
        )
        shape = len(self.g_blocks), 2, settings.g_length, backbone.width
        self.prompts = DualPrompts(uniform(*shape, generator=generator(seed, "general prompts")))

    def learn(self, session: Session, fit: Fit) -> None:
        prompts = self.prompts
        width = self.backbone.width
        t = len(self.prompts.keys)
        shape = len(self.e_blocks), 2, self.settings.e_length, width
        fresh = uniform(*shape, generator=generator(self.seed, "expert prompts"))
        prompts.experts.grow(
            prompts.experts[-1].detach().clone() if t else fresh.to(self.backbone.device)
        )
        prompts.keys.grow(
            uniform(width, generator=generator(self.seed, "expert key", t)).to(self.backbone.device)
        )
        super().learn(session, fit)

    def terms(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """All pictures get the session's expert; the key term is −λ · mean cos(q, K_t)."""
        query = batch.gather(batch.through(self.query))
        pull = F.cosine_similarity(query, self.prompts.keys[-1][None]).mean()
        expert = self.prompts.experts[-1]
        if self.settings.mixed_reshape:
            features = batch.gather(
                batch.through(self.prompted, mixed_up(expert, len(batch.inputs)))
            )
        else:
            features = batch.features(self.network, prefixes=self.prefixes(expert))
        return features, {"pull": -self.settings.pull * pull}

    def features(self, images: Tensor) -> Tensor:
        chosen = self.prompts.similarity(self.query(images)).topk(1).indices
        if self.settings.batchwise:
            chosen = most_frequent(chosen, len(self.prompts.keys)).expand_as(chosen)
        experts = torch.stack(list(self.prompts.experts))[chosen[:, 0]]
        return self.prompted(
            images, mixed_up(experts, images.shape[0]) if self.settings.mixed_reshape else experts
        )

    def prompted(self, images: Tensor, experts: Tensor) -> Tensor:
        return self.network.features(images, prefixes=self.prefixes(experts))

    def prefixes(self, experts: Tensor) -> dict[int, Prefix]:
        """Keys and values by block, for ``experts`` (E, 2, L, d) of all pictures or (N, E, 2, L, d)
        of each.
        """
        found = {block: self.prompts.general[i] for i, block in enumerate(self.g_blocks)}
        for i, block in enumerate(self.e_blocks):
            own = experts[..., i, :, :, :]
            if block in found:
                own = torch.cat([found[block].expand(*own.shape[:-3], -1, -1, -1), own], dim=-2)
            found[block] = own
        return {block: (both[..., 0, :, :], both[..., 1, :, :]) for block, both in found.items()}


def mixed_up(experts: Tensor, count: int) -> Tensor:
    """(N, E, 2, L, d) as the released code has it: [E, 2, N] read as if it were [E, N, 2]."""
    e, *rest = experts.shape[-4:]
    return (
        experts.expand(count, e, *rest)
        .permute(1, 2, 0, 3, 4)
        .reshape(e, count, *rest)
        .transpose(0, 1)
    )
