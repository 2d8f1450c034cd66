"""What the project knows about serving engines: text and JSON in, typed values out. Nothing here does I/O."""
