"""Networks and programs that tests of several packages share."""
