"""Containment: the keeper that holds a group, our handle on it, and the one stop path."""
