"""How an operator is called on arrays: checked, planned for its shapes, pushed."""
