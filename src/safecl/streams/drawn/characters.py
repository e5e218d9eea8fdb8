"""Which characters are classes: those of the stream, and others on which a backbone may be pre-trained.

Both were chosen once by comparing drawings: a character stands in ``POOL`` if the twelve DejaVu text faces have it
and it is not a near copy of one before it, ignoring size and place (so 0 stands for O and o, and no Cyrillic letter
repeats a Latin one); the characters for pre-training are other code points whose drawing is near no one of ``POOL``.
"""

import re
from importlib.resources import files


def _expand(runs: str) -> tuple[str, ...]:
    """``"41-43 5A"`` → A, B, C, Z."""
    found: list[str] = []
    for run in runs.split():
        first, _, last = run.partition("-")
        found.extend(chr(code) for code in range(int(first, 16), int(last or first, 16) + 1))
    return tuple(found)


POOL: tuple[str, ...] = tuple(
    "012345679ABCEHJKLMPQRTUVWXYZabdefkmnqrstΞΣΦΨΩαβζλμνρςσχωДЖЛЦЧШЩЪЫЮЯикыьԳ"
    "ԶԸԹԺԻԾԿՀՁՂՃՇՊՌՎՔՖթիխծկղճչպջվֆადზკოჟრტუფჭჯჰ?&@#$%§¶£€©®±÷×*=<>~()«»‡‰ЂЉЊђ"
    "ћ₦₹←↗↘↻↵⇄⇑∃∏√∞∠∫≡≤≥⊂⊃⊕⊞⌂⌘♠♡♢♥♧♩♪♫♭☀☺♀♂□▲▷◊○◎◐◢◤ƁƑƢƷɸʬϞƕϠ¤₴⇶♮♬☼♆♃☿⌥⌨⏏⊘⊠♁ɮ"
    "ƣȸʥӃ⇗↯↠↰◔▥▰"
)

_, _EVERY_FACE, _SANS_FACES = re.split(
    r"^#.*$", files(__package__).joinpath("characters.txt").read_text("utf-8"), flags=re.M
)
SANS_ONLY = frozenset(_expand(_SANS_FACES))
PRETRAINING_POOL: tuple[str, ...] = _expand(_EVERY_FACE) + _expand(_SANS_FACES)
