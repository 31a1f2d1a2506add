"""Objects of Python's that exist while a kernel is compiled: members of enumerations, dictionaries and lists."""
