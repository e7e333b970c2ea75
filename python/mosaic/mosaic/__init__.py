"""Mosaic's Python interface, answered by tessera."""
