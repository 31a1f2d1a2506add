"""Arrays of other libraries: calls on them, in their own autodiff. Each file imports its library when it is needed."""
