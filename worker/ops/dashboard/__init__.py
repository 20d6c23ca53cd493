"""rq-dashboard in an application of our own: safe to open on a queue anybody may write to.

rq-dashboard gives the addresses, the scripts and the looks. What its pages read and do is ours:
no stored value is unpickled, everything stored is shown as text, and lists are read page by page.
"""
