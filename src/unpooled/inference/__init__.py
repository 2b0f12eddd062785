"""What a release says: estimates, printed terms, tables, priors, profiles, sites, life tables, and the files in which results are kept."""
