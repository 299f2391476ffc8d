"""Which geounits exist and how they nest."""
