"""What the pages of the book share: figures, exercises, records.

Written by hand; `transformer_lib` never imports it.
"""
