"""The choices of S-iPrompts. The defaults are the paper's."""

from typing import Literal

from pydantic import Field, PositiveInt

from safecl.methods.settings.base import MethodSettings


class SipromptsSettings(MethodSettings):
    title = "S-iPrompts"
    paper = (
        "Wang et al., S-Prompts Learning with Pre-trained Transformers: An Occam's Razor, NeurIPS"
        " 2022"
    )
    kind = "prompts"
    keeps = "a prompt, a linear head and the k-means centres of each session"

    name: Literal["siprompts"] = "siprompts"
    length: PositiveInt = Field(10, description="tokens of a prompt")
    centres: PositiveInt = Field(5, description="k-means centres of a session")
