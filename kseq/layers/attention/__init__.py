"""Attention over a memory, alone and in a recurrent step."""
