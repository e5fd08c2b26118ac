"""Draws the pictures of computations on the site: python docs/drawings [NAME ...].

Every drawing is a function that takes nothing and returns a `Drawing`. The bars show real results
of the equations.
"""

import sys

import concepts
import content
import decoder
import heat_maps
import recurrent
import tasks
from canvas import draw

DRAWINGS = {
    name.replace("_", "-"): getattr(module, name)
    for module in (concepts, content, decoder, heat_maps, recurrent, tasks)
    for name in module.__all__
}

if __name__ == "__main__":
    for name in sys.argv[1:] or DRAWINGS:
        draw(name, DRAWINGS[name])
