"""A language model behind an OpenAI-compatible endpoint, as a model that is asked."""

from trustdoctor.adapters.endpoint.model import Endpoint

__all__ = ["Endpoint"]
