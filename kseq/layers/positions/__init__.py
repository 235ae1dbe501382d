"""Where a token stands: absolute, rotary and relative. No layer at all is NoPE."""
