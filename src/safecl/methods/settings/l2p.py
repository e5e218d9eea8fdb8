"""The choices of L2P. The defaults are the paper's; prompts are chosen for each picture."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from safecl.methods.settings.base import MethodSettings


class L2pSettings(MethodSettings):
    title = "L2P"
    paper = "Wang et al., Learning to Prompt for Continual Learning, CVPR 2022"
    kind = "prompts"
    keeps = "prompt pool and keys, linear head"

    name: Literal["l2p"] = "l2p"
    pool: PositiveInt = Field(
        10, description="prompts in the pool, whatever the number of sessions"
    )
    length: PositiveInt = Field(5, description="tokens of a prompt")
    top_k: PositiveInt = Field(5, description="prompts that a picture gets")
    pull: NonNegativeFloat = Field(
        0.1, description="λ of the term that pulls chosen keys to the queries"
    )
    batchwise: Literal["never", "train", "always"] = Field(
        "never",
        description=(
            "a whole batch gets the prompts chosen most often in it (released code: always)"
        ),
    )

    @model_validator(mode="after")
    def _enough(self) -> "L2pSettings":
        if self.top_k > self.pool:
            raise ValueError(f"method.top_k={self.top_k} must not exceed method.pool={self.pool}")
        return self
