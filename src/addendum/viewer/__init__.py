"""The web page: Chat and Trajectory, served by `addendum serve`."""
