"""A trace in other formats, and back; runs merged and pruned: all of them one stream of records."""
