"""Foreign frameworks, one module or folder each; each is imported only if it is used.

``from trustdoctor.adapters.torch import Doctor``, and so on: arrow, chat, endpoint,
mlflow, onnx, sklearn, torch, transformers. `errors` is what they share.
"""
