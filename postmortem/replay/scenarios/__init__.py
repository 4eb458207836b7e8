"""Training scripts that are run in processes of their own, never imported here."""
