"""The choices of DualPrompt."""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from safecl.methods.settings.base import Kind, MethodSettings


class DualpromptSettings(MethodSettings):
    """The defaults are the paper's; the expert is chosen for each picture."""

    title: ClassVar[str] = "DualPrompt"
    paper: ClassVar[str] = (
        "Wang et al., DualPrompt: Complementary Prompting for Rehearsal-free Continual Learning, ECCV 2022"
    )
    kind: ClassVar[Kind] = "prompts"
    keeps: ClassVar[str] = "general prompts, an expert prompt and a key for each session, linear head"

    name: Literal["dualprompt"] = "dualprompt"
    g_blocks: tuple[NonNegativeInt, ...] = Field((0, 1), description="blocks with a general prompt, from 0")
    e_blocks: tuple[NonNegativeInt, ...] = Field((2, 3, 4), description="blocks with an expert prompt, from 0")
    g_length: PositiveInt = Field(5, description="keys and values of a general prompt in a block")
    e_length: PositiveInt = Field(5, description="keys and values of an expert prompt in a block")
    pull: NonNegativeFloat = Field(1.0, description="λ of the term that pulls the session's key to its queries")
    batchwise: bool = Field(
        False,
        description="all pictures of a test batch get the expert chosen most often in it, as in the released code; "
        "answers then depend on the batch",
    )
    mixed_reshape: bool = Field(
        False,
        description="reshape expert prompts where they must be permuted, as in the released code: half of a batch gets "
        "keys for values, the other half values for keys",
    )
