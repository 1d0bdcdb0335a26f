"""The calls of an answer: understood, judged, run; and the tools they are made against."""
