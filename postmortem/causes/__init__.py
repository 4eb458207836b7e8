"""The usual causes of an established symptom, in the order that the signs in these logs give them."""
