"""Run the command line as ``python -m trustdoctor``."""

from trustdoctor.cli import main

if __name__ == "__main__":
    main()
