"""Killable helper processes: CPU-bound functions, and whatever may hang, crash or eat memory.

worker process ── socket pair ──► helper (imports functions, runs one row at a time)
      └── control socket ──► nursery (one thread, forks helpers, kills them with their families)

The nursery never imports a user's code and has no threads, so forking it is safe. When the worker
is gone, however it went, the nursery kills every helper and ends.
"""
