"""One door to each outside thing: own names, own errors."""
