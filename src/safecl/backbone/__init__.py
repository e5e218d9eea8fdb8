"""The frozen pre-trained network: loading it, and computing its features fast."""

from safecl.backbone.quick import import_timm_quickly

import_timm_quickly()
