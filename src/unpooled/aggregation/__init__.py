"""Aggregation shared by horizontal models: the parties' vectors become one total, and the second moments that most of them add up."""
