"""The words by which people call the things and places of ALFWorld in their goals.

Read off the goals of the official train games. Classes that share a word stand in the order in which it means them.
"""

from collections.abc import Mapping

__all__ = ["PLACE_WORDS", "THING_WORDS"]


def _by_phrase(words: Mapping[str, str]) -> Mapping[str, list[str]]:
    """Return the classes of each phrase; the one that bears it as a name comes first."""
    found: dict[str, list[str]] = {}
    for name, phrases in words.items():
        for phrase in phrases.split(", "):
            found.setdefault(phrase, []).append(name)
    return {phrase: sorted(names, key=lambda name: name != phrase.replace(" ", "")) for phrase, names in found.items()}


THING_WORDS = _by_phrase(
    {
        "alarmclock": "alarm clock, alarm, clock",
        "apple": "apple, pear, fruit, peach",
        "book": "book, notebook, magazine",
        "tissuebox": "tissue box, box of tissue, box of kleenex, kleenex box, kleenex, tissue",
        "box": "box, cardboard box",
        "bowl": "bowl, dish",
        "bread": "bread, loaf of bread, loaf, slice of bread, toast",
        "butterknife": "butter knife, butter knive, knife, knive, utensil",
        "candle": "candle, candle stick, candlestick",
        "cd": "cd, compact disc, disc, disk, dvd",
        "cellphone": "cell phone, cellphone, phone, smart phone, smartphone, mobile phone",
        "dishsponge": "sponge, dish sponge, scrubber",
        "cloth": "cloth, rag, wash cloth, washcloth, dish cloth, wash clothe, towel",
        "creditcard": "credit card, card, debit card",
        "fork": "fork, utensil",
        "handtowel": "hand towel, towel, washcloth",
        "keychain": "key chain, keychain, key, set of key, set o key, key ring, bunch of key",
        "kettle": "kettle, tea kettle, teapot, tea pot, pot",
        "ladle": "ladle, serving spoon, soup spoon, scoop, spoon",
        "knife": "knife, knive, chef's knife, cutting knife",
        "laptop": "laptop, computer, lap top, laptop computer, notebook",
        "lettuce": "lettuce, head of lettuce, cabbage, head of cabbage",
        "mug": "mug, coffee mug, coffee cup, cup of coffee, cup, tea cup, coffee",
        "cup": "cup, glass, glasse, drinking glass, martini glass, wine glass, goblet, mug",
        "glassbottle": "glass bottle, bottle, vase, glass",
        "newspaper": "newspaper, paper, news paper",
        "pan": "pan, frying pan, skillet, fry pan, pot",
        "pot": "pot, saucepan, sauce pan, cooking pot, pan",
        "pen": "pen, blue pen",
        "pencil": "pencil",
        "peppershaker": (
            "pepper shaker, pepper, pepper mill, pepper grinder, grinder, shaker, salt shaker, bottle of pepper"
        ),
        "pillow": "pillow, cushion, throw pillow",
        "plate": "plate, dish, saucer",
        "potato": "potato, potatoe, potatos, spud, coconut",
        "egg": "egg",
        "remotecontrol": "remote, remote control, tv remote, controller",
        "saltshaker": "salt shaker, salt, shaker, bottle of salt, pepper shaker",
        "toiletpaper": (
            "toilet paper, toilet paper roll, roll of toilet paper, toilet roll, empty toilet paper roll, roll, "
            "cardboard tube, cardboard roll, paper roll, tube, toilet tissue"
        ),
        "soapbottle": (
            "soap bottle, soap dispenser, bottle of soap, hand soap, lotion bottle, lotion, bottle of lotion, "
            "dish soap, perfume bottle, perfume, dispenser, pump bottle, bottle of hand soap, shampoo, bottle, soap"
        ),
        "soapbar": "bar of soap, soap bar, soap, soap block, block of soap",
        "spatula": "spatula, utensil",
        "spoon": "spoon, utensil",
        "spraybottle": (
            "spray bottle, sprayer, cleaner, bottle of cleaner, spray, window cleaner, air freshener, "
            "cleaning bottle, cleaning spray, bottle"
        ),
        "statue": "statue, sculpture, figurine, figure, bust, ornament, decoration, statuette, trophy",
        "tomato": "tomato, tomatoe, tomatos, fruit",
        "towel": "towel",
        "vase": "vase, pot, jar, urn",
        "watch": "watch, wrist watch, wristwatch, watche",
        "wateringcan": "watering can, water can, watering pot, watering pitcher, pitcher",
        "winebottle": "wine bottle, bottle of wine, wine, bottle",
        "teddybear": "teddy bear",
        "papertowelroll": "paper towel roll, paper towel, roll of paper towel",
    }
)
"""The classes of things by the phrases for them, in the singular."""

PLACE_WORDS = _by_phrase(
    {
        "armchair": "arm chair, armchair, chair, recliner, seat, couch",
        "bathtubbasin": "bath tub, bathtub, tub",
        "bed": "bed",
        "tvstand": "tv stand, television stand, entertainment center, tv, tv table, stand, console",
        "cart": "cart, rack, metal rack, metal shelf, towel rack, shelving unit, shelf",
        "shelf": "shelf, shelve, shelving, shelving unit, rack, bookshelf, book shelf, desk shelf, baker's rack, ledge",
        "coffeetable": "coffee table, table, living room table, center table",
        "diningtable": "dining table, kitchen table, dining room table, table, island, desk",
        "sidetable": (
            "side table, end table, night stand, nightstand, night table, bedside table, bed stand, bedstand, "
            "table, stand, desk, counter"
        ),
        "countertop": (
            "counter top, countertop, counter, kitchen counter, sink counter, bathroom counter, kitchen island, "
            "island, vanity, shelf, table, sink"
        ),
        "coffeemachine": "coffee machine, coffee maker, coffeemaker, coffee pot, coffee brewer, espresso machine",
        "desk": "desk, computer desk, table",
        "dresser": "dresser, chest of drawer, bureau, tv stand, television stand, stand, cabinet, tv, table",
        "drawer": "drawer, dresser drawer, desk drawer, dresser, nightstand, cabinet, desk",
        "fridge": "fridge, refrigerator, refridgerator, freezer",
        "garbagecan": (
            "garbage can, trash can, trashcan, trash, garbage, bin, trash bin, waste basket, wastebasket, recycle bin, "
            "recycling bin, waste bin, garbage bin, can, waste can, bucket, basket, dustbin, garage bin, throw, discard"
        ),
        "microwave": "microwave, microwave oven, oven",
        "ottoman": "ottoman, foot stool, footstool, foot rest, footrest, stool",
        "safe": "safe, vault, lockbox",
        "sinkbasin": "sink, basin",
        "sofa": "sofa, couch, love seat, loveseat, futon",
        "stoveburner": "stove, burner, stovetop, stove top, stove burner, oven",
        "toilet": "toilet, toilet tank, tank, water tank, toilet seat, toilet lid",
        "toiletpaperhanger": (
            "toilet paper holder, toilet paper roll holder, toilet paper hanger, toilet roll holder, "
            "toilet paper stand, paper holder, roll holder, holder, hanger, toilet paper dispenser"
        ),
        "cabinet": "cabinet, cupboard, pantry, shelf, drawer, counter",
        "handtowelholder": "hand towel holder",
        "towelholder": "towel holder",
    }
)
"""The classes of places by the phrases for them, in the singular; `throw` is a way to name the garbage can."""
