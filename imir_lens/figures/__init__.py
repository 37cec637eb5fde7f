"""Static figures as SVG text: no plotting library, no browser, no network."""
