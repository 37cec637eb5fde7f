"""What the docs site needs besides its pages: pages that are generated, and what `mkdocs build` asks for."""
