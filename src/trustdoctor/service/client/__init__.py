"""The service, called from Python."""

from trustdoctor.service.client.client import Client, Decision, Labelled, Lease

__all__ = ["Client", "Decision", "Labelled", "Lease"]
