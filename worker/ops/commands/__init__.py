"""One command a module; each has a `command` and is imported only when it is called."""
