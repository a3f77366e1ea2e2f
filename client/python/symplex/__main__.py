"""python -m symplex doctor"""
import sys

from symplex import doctor

if sys.argv[1:] != ["doctor"]:
    print("usage: python -m symplex doctor", file=sys.stderr)
    sys.exit(2)
sys.exit(0 if doctor() else 1)
