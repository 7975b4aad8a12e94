"""The pictures and tables of the pages: a module a chapter.

A page calls a function with the numbers that it has computed; what is
drawn is computed by the page and by nothing else.
"""
