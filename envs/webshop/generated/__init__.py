"""The generated shop `WebShop-synth`: words, goods, rows, and the shop itself."""
