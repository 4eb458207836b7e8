"""Line formats: what collectors and launchers put around a log line."""
