"""`python -m kubeserver`."""

import sys

from kubeserver.command_line import main

if __name__ == "__main__":
    sys.exit(main())
