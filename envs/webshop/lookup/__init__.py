"""The search of the shop: Lucene's words and BM25, without Lucene."""
