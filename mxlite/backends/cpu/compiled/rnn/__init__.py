"""Generated code for recurrent layers."""
