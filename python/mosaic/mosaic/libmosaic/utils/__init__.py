"""Part of Mosaic's Python interface."""
