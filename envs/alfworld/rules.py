"""The rules of the ALFWorld text world: what can be done, what it does and says, and what wins.

They restate the effect of ALFWorld's PDDL domain as TextWorld and Fast Downward play it, quirks included.
"""

from collections.abc import Callable

from agentgym_tok.envs.alfworld import text
from agentgym_tok.envs.alfworld.room import Action, Room, State

__all__ = ["commands", "first_look", "perform", "solved"]


def commands(room: Room, state: State) -> dict[str, Action]:
    """Return every command that the world accepts now, and what it does."""
    found = room.anywhere[state.at].copy()
    for r in room.receptacles_at[state.at]:
        _offer_receptacle(found, room, state, r)
    if state.held is not None:
        held = room.objects[state.held]
        found[f"examine {held}"] = ("examine object", (state.held,))
        if state.held in room.knives:
            # What lies at this location can be sliced in a closed receptacle too, and in none at all.
            for o in room.sliceable:
                if (o, state.at) in state.object_at:
                    found[f"slice {room.objects[o]} with {held}"] = ("slice", (o, state.held))
    return found


def _offer_receptacle(found: dict[str, Action], room: Room, state: State, r: int) -> None:
    name, inside, held = room.receptacles[r], state.contents[r], state.held
    found[f"examine {name}"] = ("examine receptacle", (r,))
    accessible = True
    if r in room.openable:
        accessible = r in state.opened
        rule = "close" if accessible else "open"
        found[f"{rule} {name}"] = (rule, (r,))
    if held is None:
        if accessible:
            for o in room.pickupable.intersection(inside):
                found[f"take {room.objects[o]} from {name}"] = ("take", (o, r))
    else:
        if accessible and held in room.fits[r]:
            found[f"move {room.objects[held]} to {name}"] = ("move", (held, r))
        treatment = room.treats[r]
        if treatment is not None and held in treatment[1]:
            found[f"{treatment[0]} {room.objects[held]} with {name}"] = (treatment[0], (held, r))
    # A lamp works in a closed receptacle too.
    for o in room.toggleable.intersection(inside):
        found[f"use {room.objects[o]}"] = ("use", (o,))


def perform(room: Room, state: State, action: Action) -> tuple[State, str]:
    """Return the state after an action, and what the world says.

    Args:
        room: The room.
        state: The state that `commands` listed the action for; it is returned itself where nothing changes.
        action: One of the values of `commands(room, state)`.
    """
    rule, numbers = action
    after, words = _RULES[rule](room, state, *numbers)
    return state if after == state else after, words


def first_look(room: Room) -> str:
    """Return the world's first view of a room: all its receptacles, or what the agent faces."""
    if room.receptacles_at[room.start.at]:
        return _look(room, room.start)[1]
    return text.in_middle(text.listing(room.receptacles))


def solved(room: Room, state: State) -> bool:
    """Return whether a state satisfies the goal."""
    if room.goal_type == "look_at_obj_in_light":
        lamps = state.lit & room.goal_lamps
        here = room.receptacles_at[state.at]
        return state.held in room.goal_objects and any(not lamps.isdisjoint(state.contents[r]) for r in here)
    wanted = room.goal_objects
    if room.goal_type == "pick_clean_then_place_in_recep":
        wanted &= state.clean
    elif room.goal_type == "pick_heat_then_place_in_recep":
        wanted &= state.hot
    elif room.goal_type == "pick_cool_then_place_in_recep":
        wanted &= state.cool
    enough = 2 if room.goal_type == "pick_two_obj_and_place" else 1
    return any(len(wanted.intersection(state.contents[r])) >= enough for r in room.goal_receptacles)


def _look(room: Room, state: State) -> tuple[State, str]:
    here = room.receptacles_at[state.at]
    if not here:
        return state, text.in_middle("nothing")
    # Only what was taken from a receptacle here and lies at this location again, once for each such receptacle.
    beside = sorted((o, r) for o, r in state.taken if r in here and (o, state.at) in state.object_at)
    receptacles = text.listing([room.receptacles[r] for r in here], article="")
    return state, text.facing(receptacles, text.listing([room.objects[o] for o, _ in beside]))


def _inventory(room: Room, state: State) -> tuple[State, str]:
    return state, text.EMPTY_HAND if state.held is None else text.carrying(room.objects[state.held])


def _help(room: Room, state: State) -> tuple[State, str]:  # noqa: ARG001 - the signature of every rule
    return state, text.HELP


def _go(room: Room, state: State, r: int) -> tuple[State, str]:
    state = state._replace(at=room.location[r])
    return state, text.arrived(room.receptacles[r], _view(room, state, r))


def _open(room: Room, state: State, r: int) -> tuple[State, str]:
    state = state._replace(opened=state.opened | {r})
    return state, text.opened(room.receptacles[r], _view(room, state, r))


def _close(room: Room, state: State, r: int) -> tuple[State, str]:
    return state._replace(opened=state.opened - {r}), text.closed(room.receptacles[r])


def _take(room: Room, state: State, o: int, r: int) -> tuple[State, str]:
    contents = list(state.contents)
    contents[r] = tuple(other for other in contents[r] if other != o)
    state = state._replace(
        held=o,
        contents=tuple(contents),
        # An object that the game file puts at another location stays there as well.
        object_at=state.object_at - {(o, state.at)},
        taken=state.taken | {(o, r)},
    )
    return state, text.took(room.objects[o], room.receptacles[r])


def _move(room: Room, state: State, o: int, r: int) -> tuple[State, str]:
    contents = list(state.contents)
    contents[r] = tuple(sorted({*contents[r], o}))
    state = state._replace(
        held=None,
        contents=tuple(contents),
        object_at=state.object_at | {(o, state.at)},
        taken=state.taken - {(o, r)},
    )
    return state, text.moved(room.objects[o], room.receptacles[r])


def _clean(room: Room, state: State, o: int, r: int) -> tuple[State, str]:
    return state._replace(clean=state.clean | {o}), text.cleaned(room.objects[o], room.receptacles[r])


def _heat(room: Room, state: State, o: int, r: int) -> tuple[State, str]:
    state = state._replace(hot=state.hot | {o}, cool=state.cool - {o})
    return state, text.heated(room.objects[o], room.receptacles[r])


def _cool(room: Room, state: State, o: int, r: int) -> tuple[State, str]:
    state = state._replace(cool=state.cool | {o}, hot=state.hot - {o})
    return state, text.cooled(room.objects[o], room.receptacles[r])


def _use(room: Room, state: State, o: int) -> tuple[State, str]:
    return state._replace(lit=state.lit | {o}), text.used(room.objects[o])


def _slice(room: Room, state: State, o: int, knife: int) -> tuple[State, str]:
    return state._replace(sliced=state.sliced | {o}), text.sliced(room.objects[o], room.objects[knife])


def _examine_receptacle(room: Room, state: State, r: int) -> tuple[State, str]:
    return state, _view(room, state, r)


def _examine_object(room: Room, state: State, o: int) -> tuple[State, str]:
    inside = room.inside.get(o)
    return state, text.object_seen(
        room.objects[o],
        inside=None if inside is None else [room.objects[inner] for inner in inside],
        clean=o in state.clean,
        hot=o in state.hot,
        cool=o in state.cool,
        sliced=o in state.sliced,
        lit=o in state.lit,
    )


def _view(room: Room, state: State, r: int) -> str:
    name = room.receptacles[r]
    if r in room.openable and r not in state.opened:
        return text.closed_view(name)
    listing = text.listing([room.objects[o] for o in state.contents[r]])
    return text.open_view(name, listing) if r in room.openable else text.surface_view(name, listing)


_RULES: dict[str, Callable[..., tuple[State, str]]] = {
    "look": _look,
    "inventory": _inventory,
    "help": _help,
    "go": _go,
    "open": _open,
    "close": _close,
    "take": _take,
    "move": _move,
    "clean": _clean,
    "heat": _heat,
    "cool": _cool,
    "use": _use,
    "slice": _slice,
    "examine receptacle": _examine_receptacle,
    "examine object": _examine_object,
}
