"""The experiment ledger as pages and tables: a view of stored entries, with no opinion and no memory of its own."""
