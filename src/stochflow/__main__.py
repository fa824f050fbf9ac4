"""`python -m stochflow` is the command `stochflow`."""

from .cli import main

if __name__ == "__main__":
    main()
