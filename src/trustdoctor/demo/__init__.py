"""The bundled predictions, and a small model to perturb."""

from trustdoctor.demo.rows import CLASSES, MODELS, bundled_file, save_demo

__all__ = ["CLASSES", "MODELS", "bundled_file", "save_demo"]
