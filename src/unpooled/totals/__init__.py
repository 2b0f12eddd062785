"""How integer vectors of parties become one noisy total: keys, secure sums, trusted aggregators, exact sums over rows."""
