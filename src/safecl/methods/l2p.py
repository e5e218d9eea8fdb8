"""L2P: a pool of prompts with keys; each picture gets those whose keys are nearest to its query."""

from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.methods.method import Batch
from safecl.methods.prompted import KeyedPrompts, PromptMethod, most_frequent, uniform
from safecl.methods.settings.l2p import L2pSettings
from safecl.randomness import generator


class PromptPool(KeyedPrompts):
    """Prompts (P, L, d) and keys (P, d), both from U(−1, 1)."""

    def __init__(self, pool: int, length: int, width: int, seed: int) -> None:
        super().__init__()
        self.tokens = nn.Parameter(
            uniform(pool, length, width, generator=generator(seed, "prompts"))
        )
        self.keys = nn.Parameter(uniform(pool, width, generator=generator(seed, "prompt keys")))


class L2P(PromptMethod):
    """One pool for all sessions. The head reads the mean of the prompts' outputs."""

    outputs = ("l2p",)
    settings: L2pSettings
    prompts: PromptPool

    def __init__(self, backbone: Backbone, settings: L2pSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.prompts = PromptPool(settings.pool, settings.length, backbone.width, seed)

    def terms(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The key term: −λ · mean over pictures of Σ_k cos(q, K_k), k over the chosen prompts."""
        similarity = self.prompts.similarity(batch.through(self.query))
        chosen = similarity.topk(self.settings.top_k).indices
        if self.settings.batchwise != "never":
            chosen = most_frequent(batch.gather(chosen), self.settings.pool).expand_as(chosen)
        pull = batch.gather(similarity.gather(1, chosen)).sum(dim=1).mean()
        return batch.gather(batch.through(self.prompted, chosen)), {
            "pull": -self.settings.pull * pull
        }

    def features(self, images: Tensor) -> Tensor:
        chosen = self.prompts.similarity(self.query(images)).topk(self.settings.top_k).indices
        if self.settings.batchwise == "always":
            chosen = most_frequent(chosen, self.settings.pool).expand_as(chosen)
        return self.prompted(images, chosen)

    def prompted(self, images: Tensor, chosen: Tensor) -> Tensor:
        """The mean output of the prompts ``chosen`` (N, K), which have the position of the CLS
        token: (N, d).
        """
        prompts = self.prompts.tokens[chosen].flatten(1, 2) + self.backbone.cls_position
        return self.network.tokens(images, 1 + prompts.shape[1], prompts=prompts)[:, 1:].mean(dim=1)
