"""Pure functions from data to pictures: HTML, SVG or a plotly Figure. No widget, no engine."""
