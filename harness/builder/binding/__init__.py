"""How a binding hands an operator's arguments to C++."""
