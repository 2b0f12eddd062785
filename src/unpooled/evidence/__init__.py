"""Documents for those who sign: a dossier, a record for a public registry, and a crate. Each sentence is a fact of the study, or is marked."""
