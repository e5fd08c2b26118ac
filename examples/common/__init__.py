"""What several tasks share. Nothing here imports a task."""
