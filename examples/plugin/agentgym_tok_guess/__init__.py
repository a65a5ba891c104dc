"""A world, a policy and a retriever for agentgym-tok. Importing this imports none of them."""
