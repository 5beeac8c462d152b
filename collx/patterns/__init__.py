"""Who talks to whom: trees, rings, distances and folds, as pure functions of rank and size."""
