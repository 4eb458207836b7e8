"""What no line states and the logs show together: how ranks ended, who did not come, who stands where, who
fell silent."""
