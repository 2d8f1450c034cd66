"""The dashboard: pages of one or many workspaces for people with a browser. FastAPI's only home.

Reads the store like `tuneloop status` does and holds no lock. The one thing it writes is the operator's control file,
through the code of the command line.
"""
