"""Would be given the compiler's command; it never runs, and asks nobody."""

import os
import sys

print("OPEN: a program of the project's runs in the builder")
os.execvp(sys.argv[1], sys.argv[1:])
