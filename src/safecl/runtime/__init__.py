"""Answers from an exported file, with numpy, pillow and onnxruntime alone."""
