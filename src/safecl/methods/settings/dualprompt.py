"""The choices of DualPrompt. The defaults are the paper's; the expert is chosen for each
picture.
"""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from safecl.methods.settings.base import MethodSettings
from safecl.settings import With


class DualpromptSettings(MethodSettings):
    title = "DualPrompt"
    paper = (
        "Wang et al., DualPrompt: Complementary Prompting for Rehearsal-free Continual Learning,"
        " ECCV 2022"
    )
    kind = "prompts"
    keeps = "general prompts, an expert prompt and a key for each session, linear head"
    acts_with: ClassVar = {
        "g_length": (With("g_blocks"),),
        **dict.fromkeys(("e_length", "batchwise", "mixed_reshape"), (With("e_blocks"),)),
    }

    name: Literal["dualprompt"] = "dualprompt"
    g_blocks: tuple[NonNegativeInt, ...] = Field(
        (0, 1), description="blocks with a general prompt, from 0"
    )
    e_blocks: tuple[NonNegativeInt, ...] = Field(
        (2, 3, 4), description="blocks with an expert prompt, from 0"
    )
    g_length: PositiveInt = Field(5, description="keys and values of a general prompt in a block")
    e_length: PositiveInt = Field(5, description="keys and values of an expert prompt in a block")
    pull: NonNegativeFloat = Field(
        1.0, description="λ of the term that pulls the session's key to its queries"
    )
    batchwise: bool = Field(
        False,
        description=(
            "a whole test batch gets the expert chosen most often in it, as in the released code"
        ),
    )
    mixed_reshape: bool = Field(
        False,
        description=(
            "keys and values of expert prompts are mixed up over a batch, as in the released code"
        ),
    )
