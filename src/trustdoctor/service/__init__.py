"""The gate at work: decisions, reviews, labels and a watch, over HTTP."""

from trustdoctor.service.client import Client

__all__ = ["Client"]
