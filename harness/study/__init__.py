"""Studies: plan, trials, conversation, store, execution."""
