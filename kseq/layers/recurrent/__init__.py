"""Recurrent cells, and the layers that run a cell over time."""
