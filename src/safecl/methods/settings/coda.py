"""The choices of CODA-Prompt."""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator

from safecl.methods.settings.base import Kind, MethodSettings


class CodaSettings(MethodSettings):
    """The defaults are the paper's for ten sessions: 100 components."""

    title: ClassVar[str] = "CODA-Prompt"
    paper: ClassVar[str] = (
        "Smith et al., CODA-Prompt: COntinual Decomposed Attention-based Prompting for Rehearsal-Free Continual "
        "Learning, CVPR 2023"
    )
    kind: ClassVar[Kind] = "prompts"
    keeps: ClassVar[str] = "prompt components, their keys and attention vectors, linear head"

    name: Literal["coda"] = "coda"
    components: PositiveInt = Field(10, description="new components of a session (the paper: 100 in all)")
    length: PositiveInt = Field(8, description="rows of a component: half of them keys, half of them values")
    blocks: PositiveInt = Field(5, description="how many of the first blocks get prompts")
    ortho: NonNegativeFloat = Field(
        0.0, description="μ of the orthogonality penalty (0 in the released configurations: the start is orthogonal)"
    )

    @field_validator("length")
    @classmethod
    def _even(cls, length: int) -> int:
        if length % 2:
            raise ValueError("method.length must be even: half of a component are keys, half are values")
        return length
