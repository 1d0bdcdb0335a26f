"""What may be called: definitions, the folds, the registry, servers, the dispatcher."""
