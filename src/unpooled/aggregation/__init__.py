"""What horizontal models share: the parties' vectors become one total, and the second moments that most of them add up."""
