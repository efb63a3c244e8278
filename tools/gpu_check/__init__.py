"""What can only be known on a machine with a GPU: measured there item by item, and kept in results/.

Owns: the items, their order, and the record of what they found. Does not own: the sandboxes and the judge
that the items try out. Invariant: what did not run is called `not measured yet`, never passed.
"""
