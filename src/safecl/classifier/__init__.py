"""Models that people keep: taught session by session, saved in one file, asked for predictions."""
