"""Pictures: decoded once, cached, cropped, read ahead in batches."""
