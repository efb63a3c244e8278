"""What a failed build says: whose fault it is, and the first error of each file."""
