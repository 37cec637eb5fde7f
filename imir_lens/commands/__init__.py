"""The commands, one file each. Importing them imports nothing heavy: a command loads what it needs when it runs."""
