"""What must hold for every operator, and the table of rows that it is held against."""
