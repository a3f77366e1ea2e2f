"""python -m symplex doctor"""
import sys

from symplex import doctor

USAGE = "usage: python -m symplex doctor\n\nTells what works here; exit 1: compiling does not."

if sys.argv[1:] in (["-h"], ["--help"], ["doctor", "-h"], ["doctor", "--help"]):
    print(USAGE)
    sys.exit(0)
if sys.argv[1:] != ["doctor"]:
    print(USAGE, file=sys.stderr)
    sys.exit(2)
sys.exit(0 if doctor() else 1)
