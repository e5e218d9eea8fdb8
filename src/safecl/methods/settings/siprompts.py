"""The choices of S-iPrompts."""

from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from safecl.methods.settings.base import Kind, MethodSettings


class SipromptsSettings(MethodSettings):
    """The defaults are the paper's."""

    title: ClassVar[str] = "S-iPrompts"
    paper: ClassVar[str] = (
        "Wang et al., S-Prompts Learning with Pre-trained Transformers: An Occam's Razor for Domain Incremental "
        "Learning, NeurIPS 2022"
    )
    kind: ClassVar[Kind] = "prompts"
    keeps: ClassVar[str] = "a prompt, a linear head and the k-means centres of each session"

    name: Literal["siprompts"] = "siprompts"
    length: PositiveInt = Field(10, description="tokens of a prompt")
    centres: PositiveInt = Field(5, description="k-means centres of a session")
    distance: Literal["l1", "l2"] = Field("l1", description="by which the nearest centre is found (l1: released code)")
