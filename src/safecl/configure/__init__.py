"""From the words of a user to typed settings; shared by runs and models. Nothing heavy is
imported.
"""
