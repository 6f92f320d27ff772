"""The package `cairn` and numpy; MISSING says why they are not there, for tests that then skip."""
try:
    import numpy as np
    import cairn
    MISSING = None
except ImportError as error:  # python3-numpy belongs to /usr/bin/python3
    np = cairn = None
    MISSING = str(error)
