"""Many requests on one engine: which blocks of memory are whose, who is next, and the loop around them."""
