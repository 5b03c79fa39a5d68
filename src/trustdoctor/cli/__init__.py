"""The command line, ``trustdoctor`` and ``python -m trustdoctor``."""

from trustdoctor.cli.app import main, make_app

__all__ = ["main", "make_app"]
