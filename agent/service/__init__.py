"""`tuneloop serve`: many studies in one process, for nights without people. Crash-only: to start is to recover."""
