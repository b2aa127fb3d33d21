"""Settings and helpers of the scenario tests; python3 standard library only.
"""


class settings:
    """What the runner was told."""
    build = 'build'
    scale = 1.0  # of every time limit
    keep = False
