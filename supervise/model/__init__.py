"""All nouns of supervise: frozen values, standard library only, no input or output."""
