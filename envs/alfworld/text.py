"""Every sentence of the ALFWorld text world, byte for byte as TextWorld prints it."""

from collections.abc import Sequence

__all__ = ["HELP", "NOTHING_HAPPENS", "listing", "object_seen"]

NOTHING_HAPPENS = "Nothing happens."
EMPTY_HAND = "You are not carrying anything."

HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""

# Sentences with gaps. The last gap of `arrived` and `opened` takes one of the next three, a receptacle's view;
# "{}" at the end of a view, and in `welcome`, takes a listing.
welcome = "-= Welcome to TextWorld, ALFRED! =-\n\n{}\n\n{}".format
in_middle = "You are in the middle of a room. Looking quickly around you, you see {}.".format
facing = "You are facing the {}. Next to it, you see {}.".format

open_view = "The {} is open. In it, you see {}.".format
closed_view = "The {} is closed.".format
surface_view = "On the {}, you see {}.".format

arrived = "You arrive at {}. {}".format
opened = "You open the {}. {}".format
closed = "You close the {}.".format
took = "You pick up the {} from the {}.".format
moved = "You move the {} to the {}.".format
cleaned = "You clean the {} using the {}.".format
heated = "You heat the {} using the {}.".format
cooled = "You cool the {} using the {}.".format
used = "You turn on the {}.".format
sliced = "You sliced the {} with the {}.".format
carrying = "You are carrying: a {}.".format


def listing(names: Sequence[str], article: str = "a ") -> str:
    """Join names as the world does: the article is always "a", and a comma stands before every "and"."""
    if not names:
        return "nothing"
    if len(names) == 1:
        return article + names[0]
    between = f", {article}"
    return f"{article}{between.join(names[:-1])}, and {article}{names[-1]}"


def object_seen(
    name: str, *, inside: Sequence[str] | None, clean: bool, hot: bool, cool: bool, sliced: bool, lit: bool
) -> str:
    """Say how a held object looks.

    Args:
        name: Name of the object.
        inside: Names of the objects in it where it is a receptacle itself; these hide its states.
        clean: It was cleaned.
        hot: It was heated.
        cool: It is cool; "cold" is the world's word where nothing else is to be said.
        sliced: It was sliced.
        lit: It is a lamp that was switched on.
    """
    if inside is not None:
        return f"This is a normal {name}. In it, you see {listing(inside)}."
    states = ["hot"] if hot else ["cool"] if cool else []
    if clean:
        states.append("clean")
    if sliced and states:
        return f"This is a {' and '.join(states)} sliced {name}."
    if states:
        return f"This is a {' and '.join(states) if states != ['cool'] else 'cold'} {name}."
    if lit:
        return f"This {name} is on."
    if sliced:
        return f"This is a sliced {name}."
    return f"There's nothing special about {name}."
