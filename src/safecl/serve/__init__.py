"""A service that answers, learns and is taught on a page; the extra ``serve`` installs what it
needs.
"""
