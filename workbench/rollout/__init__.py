"""Agent loops over a pool: tasks in, exact trajectories out."""
