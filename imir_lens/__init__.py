"""Which mechanism does this transformer use, and how sure are we?"""

__version__ = "0.1.0"
