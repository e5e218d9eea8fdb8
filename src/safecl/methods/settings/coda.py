"""The choices of CODA-Prompt. The defaults are the paper's for ten sessions: 100 components."""

from typing import Literal

from pydantic import Field, PositiveInt

from safecl.methods.settings.base import MethodSettings


class CodaSettings(MethodSettings):
    title = "CODA-Prompt"
    paper = "Smith et al., CODA-Prompt: COntinual Decomposed Attention-based Prompting, CVPR 2023"
    kind = "prompts"
    keeps = "prompt components, their keys and attention vectors, linear head"

    name: Literal["coda"] = "coda"
    components: PositiveInt = Field(
        10, description="new components of a session (the paper: 100 in all)"
    )
    length: PositiveInt = Field(
        8, multiple_of=2, description="rows of a component: half are keys, half values"
    )
    blocks: PositiveInt = Field(5, description="how many of the first blocks get prompts")
