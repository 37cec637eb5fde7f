"""`python -m imir_lens` is `imir-lens`."""

from imir_lens.cli import main

if __name__ == "__main__":
    main()
