"""The leaderboard: many runs become ranked tables and a static site in which every cell can be audited."""
