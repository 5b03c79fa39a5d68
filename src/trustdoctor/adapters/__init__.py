"""Foreign frameworks, one file each; nothing here is imported until it is asked for.

``from trustdoctor.adapters.torch import Doctor``, and so on: arrow, chat, endpoint,
mlflow, onnx, sklearn, torch, transformers. What they share is in asking.
"""
