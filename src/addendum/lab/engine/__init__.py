"""One real engine beside the simulators: it measures what it reads again, the script speaks."""
