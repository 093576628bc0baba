"""Control flow and operators that users write."""
