"""What must hold exactly."""
