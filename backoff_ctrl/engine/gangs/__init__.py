"""Several creates that are admitted as one: what is reserved, drawn and lacking (``gang``), and who lives
(``members``)."""
