"""Scripts to read and to run: ``python -m trustdoctor.examples.NAME``."""
