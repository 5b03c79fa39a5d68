"""What the program's exit code says."""

DONE = 0
ALARM = 1
MISTAKE = 2
TRIVIAL = 3
INTERNAL = 70
STOPPED = 130
CLOSED = 141

EXIT_CODES = {
    DONE: "done",
    ALARM: "check: an alarm",
    MISTAKE: "bad input or usage",
    TRIVIAL: "calibrate, cascade: not written: it decides nothing, or odd labels",
    INTERNAL: "an internal error",
    STOPPED: "stopped by Ctrl-C",
}
"""Those that are documented; 141 is the shell's for a reader that went away."""
