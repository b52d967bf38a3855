"""Many requests on one engine: who owns which blocks of memory, whose turn is next, and the loop around them."""
