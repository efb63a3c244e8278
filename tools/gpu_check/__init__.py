"""What can only be known on a machine with a GPU: measured there item by item, and kept in results/.

What did not run is called `not measured yet`, never passed.
"""
