"""The addresses of the dashboard: each route reads, and hands what it read to a template."""
