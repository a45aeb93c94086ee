"""Other packages' names for this engine, for programs that import those. Opt-in: import the module you want."""
