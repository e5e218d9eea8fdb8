"""timm's ViT with a CLS token, on the fast path of ``view.tokens``."""

from typing import Any, ClassVar, Unpack

from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone.families.family import Family
from safecl.backbone.view import Inserted, shared_view, tokens
from safecl.heads.reading import Reading, Widths


class Vit(Family):
    """Its own feature is the CLS token after the final norm, however timm pools."""

    network: VisionTransformer
    own = "the CLS token"
    earlier = "the CLS token"
    patches = "the mean of the patch tokens"
    rounds: ClassVar[bool] = True
    inserts: ClassVar[bool] = True

    def view(self, network: nn.Module) -> VisionTransformer:
        vit: Any = network
        return shared_view(vit)

    def features(self, view: Any, pictures: Tensor, **inserted: Unpack[Inserted]) -> Tensor:
        return tokens(view, pictures, 1, **inserted)[:, 0]

    def read(self, view: Any, pictures: Tensor, reading: Reading) -> Tensor:
        return tokens(view, pictures, 1, reading=reading).flatten(1)

    def _widths(self) -> Widths:
        vit: Any = self.network
        d = int(vit.embed_dim)
        return Widths(d, (d,) * (len(vit.blocks) - 1), d)
