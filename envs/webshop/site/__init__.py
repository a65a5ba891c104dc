"""A running WebShop site, page by page, as an engine."""
