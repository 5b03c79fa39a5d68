"""Colours and lines of every picture, in one place."""

COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
)  # fmt: skip
"""Okabe and Ito's, which colour-blind people tell apart."""

RIGHT, WRONG = COLOURS[:2]
"""Of correct rows and of errors."""

LIMIT = "#c00000"
"""Of a line that something is measured against."""

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), "-")
MARKERS = "osD^v"
