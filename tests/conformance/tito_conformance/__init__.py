"""Drive any gateway that speaks OpenAI chat through the known ways in which token ids drift, and judge what it does."""
