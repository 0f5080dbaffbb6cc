"""The only code that imports torch. Each private API is behind one function that says what
happens when this torch does not have it."""
