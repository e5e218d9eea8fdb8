"""The frozen pre-trained ViT: loading it, and computing its features fast."""
