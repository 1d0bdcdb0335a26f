"""How a provider hears it: one package a wire API, and the transport."""
