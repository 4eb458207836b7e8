"""Line formats: the prefixes and records that launchers and collectors write around a log line."""
