"""The official Python clients, with creates that wait their turn."""
