"""The words that generated products are made of: aisles with their kinds of goods, and names that nobody bears."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["KINDS", "OPTION_VALUES", "USES", "Aisle", "Kind", "Names", "names_of"]


@dataclass(frozen=True, slots=True)
class Aisle:
    """Hold what the goods of an aisle have in common.

    Args:
        category: The department, as WebShop calls it.
        path: Names of categories, from wide to narrow.
        options: Keys of `OPTION_VALUES`; a product has some of them.
        prices: The lowest and the highest price, in whole dollars.
        attributes: What products may have; each has some.
    """

    category: str
    path: tuple[str, str]
    options: tuple[str, ...]
    prices: tuple[int, int]
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """Hold what goods are called.

    Args:
        brands: Invented brands.
        lines: Invented names of product lines.
    """

    brands: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """Hold a kind of goods.

    Args:
        name: Its name, one piece.
        query: The search words that all of its kind are found by.
        aisle: Where it stands.
    """

    name: str
    query: str
    aisle: Aisle


_AISLES = """
garden | Home & Kitchen | Lighting | metal, height | 15-140
    desk lamp, floor lamp, table lamp, night light, reading light
    energy saving, easy assemble, touch control, solid wood, glass shade, remote control, long cord, warm glow
garden | Home & Kitchen | Bedding | color, bed | 18-160
    duvet cover, pillow cover, throw blanket, bed skirt, mattress pad
    machine washable, super soft, wrinkle resistant, double sided, zipper closure, long lasting, easy care, deep pockets
garden | Home & Kitchen | Furniture | finish, height | 40-400
    book shelf, coffee table, bar stool, shoe rack, tv stand
    space saving, easy clean, solid wood, easy assemble, metal legs, hidden storage, heavy duty, non slip
beauty | Beauty & Care | Hair Care | scent, volume | 6-60
    hair mask, hair oil, hair spray, scalp serum
    sulfate free, cruelty free, tea tree, argan oil, damaged hair, color safe, long lasting, paraben free, dry scalp
beauty | Beauty & Care | Skin Care | scent, volume | 7-90
    face cream, face wash, body lotion, hand balm, eye gel
    fragrance free, sensitive skin, hyaluronic acid, cruelty free, fine lines, dark circles, oil free, easy absorb
beauty | Beauty & Care | Tools | color, count | 5-70
    makeup brush, nail file, hair clip, bath sponge
    easy carry, double sided, easy clean, non slip, eco friendly, high quality, stainless steel, travel size
electronics | Electronics | Audio | color, plug | 15-300
    headphones, earbuds, bluetooth speaker, sound bar, microphone
    noise cancelling, fast charging, water resistant, stereo sound, hands free, long battery, quick pairing, deep bass
electronics | Electronics | Accessories | color, length, plug | 6-60
    charging cable, phone stand, wall charger, screen cover
    fast charging, easy install, heavy duty, high speed, dust proof, gold plated, ultra slim, case friendly
electronics | Electronics | Photo & Video | kit, memory | 30-450
    action camera, trail camera, camera tripod, photo printer
    high resolution, night vision, easy carry, motion sensor, optical zoom, quick release, water resistant, carbon fiber
fashion | Clothing & Shoes | Tops | color, clothes | 12-90
    shirt, hoodie, sweater, polo shirt, tank top
    long sleeve, machine wash, slim fit, moisture wicking, hand wash, classic fit, quick drying, button closure
fashion | Clothing & Shoes | Bottoms | color, clothes | 15-110
    jeans, leggings, cargo pants, shorts, pleated skirt
    elastic waist, machine wash, high waist, quick drying, wide leg, straight leg, tummy control, side pockets
fashion | Clothing & Shoes | Shoes | color, shoes | 20-190
    sneakers, ankle boots, sandals, house slippers, running shoes
    rubber sole, memory foam, arch support, slip resistant, water resistant, open toe, faux fur, ankle strap
grocery | Grocery | Snacks | flavor, weight | 4-50
    granola bars, rice crackers, trail mix, veggie chips, fruit snacks
    gluten free, low sodium, non gmo, plant based, low carb, nut free, high protein, individually wrapped
grocery | Grocery | Drinks | flavor, count | 5-60
    herbal tea, ground coffee, cocoa mix, sparkling water, lemonade mix
    caffeine free, usda organic, sugar free, fair trade, non gmo, freshly roasted, keto friendly, natural flavors
grocery | Grocery | Pantry | weight, count | 4-70
    pasta sauce, olive oil, baking flour, bean soup, rice noodles
    gluten free, extra virgin, ready to eat, low fat, dairy free, shelf stable, no artificial colors, stone ground
"""

OPTION_VALUES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        key: (name, tuple(values.split(", ")))
        for key, name, values in (
            (
                "color",
                "Color",
                "Black, White, Grey, Navy Blue, Olive Green, Burgundy, Teal, Beige, Lavender, Coral, Plum",
            ),
            ("metal", "Color", "Black, White, Bronze, Gold, Silver, Copper, Pewter"),
            ("finish", "Finish", "Walnut, Espresso, Natural Oak, White, Black, Rustic Brown, Cherry"),
            ("height", "Size", "12 inch, 18 inch, 24 inch, 36 inch, 60 inch"),
            ("bed", "Size", "Twin, Full, Queen, King, California King"),
            ("scent", "Scent", "Lavender, Jasmine, Vanilla, Eucalyptus, Bergamot, Coconut, Citrus Zest"),
            ("volume", "Size", "2 fl oz, 4 fl oz, 8 fl oz, 12 fl oz, 16 fl oz"),
            ("count", "Number of Items", "1 count, 2 count, 4 count, 6 count, 12 count"),
            ("plug", "Style", "USB C, Barrel Plug, Micro USB, Magnetic"),
            ("length", "Length", "3 feet, 6 feet, 10 feet, 15 feet"),
            ("kit", "Style", "Body Only, With Case, With Spare Battery, Starter Kit"),
            ("memory", "Capacity", "32 gb, 64 gb, 128 gb, 256 gb"),
            ("clothes", "Size", "Small, Medium, Large, X-Large, XX-Large, 3X-Large"),
            ("shoes", "Size", "5, 6, 7, 8, 9, 10, 11, 12"),
            ("flavor", "Flavor Name", "Honey, Sea Salt, Cinnamon, Dark Chocolate, Mango, Lemon Ginger, Maple"),
            ("weight", "Size", "6 ounce, 10 ounce, 16 ounce, 24 ounce, 40 ounce"),
        )
    }
)
"""Name of the option, and its values as raw files write them, by a key.

No value may hold a colour that the reward knows inside another word: it would not match itself.
"""

USES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "garden": ("bedroom", "office", "nursery", "patio", "dorm", "hallway"),
        "beauty": ("women", "men", "travel", "salon", "home", "gym"),
        "electronics": ("travel", "office", "gaming", "home", "car", "school"),
        "fashion": ("women", "men", "hiking", "work", "yoga", "holidays"),
        "grocery": ("breakfast", "lunch", "gifts", "camping", "parties", "school"),
    }
)
"""What goods are for, by department."""


def _kinds() -> tuple[Kind, ...]:
    lines = [line.strip() for line in _AISLES.strip().splitlines()]
    kinds = []
    for head, names, attributes in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        category, wide, narrow, options, prices = head.split(" | ")
        low, high = map(int, prices.split("-"))
        aisle = Aisle(category, (wide, narrow), tuple(options.split(", ")), (low, high), tuple(attributes.split(", ")))
        kinds += [Kind(name, _plural(name), aisle) for name in names.split(", ")]
    return tuple(kinds)


def _plural(name: str) -> str:
    if name.endswith("s") or name.rsplit(maxsplit=1)[-1] in _UNCOUNTED:
        return name
    if name.endswith("lf"):
        return f"{name[:-1]}ves"
    return f"{name}es" if name.endswith(("sh", "x")) else f"{name}s"


_UNCOUNTED = frozenset({"coffee", "flour", "mix", "oil", "sauce", "soup", "tea", "water"})

KINDS = _kinds()
"""All kinds of goods, aisle by aisle."""


def _names(first: str, last: str) -> tuple[str, ...]:
    return tuple(begin + end for begin in first.split() for end in last.split())


_SCORED = Names(
    _names(
        "Vel Tor Quin Mar Bes Lor Fen Zan Kel Dru Har Sol Pel Wex Nor Cas Jun Obr Tal Ulm Ves Yar Cor Gan Hul Ivar",
        "mora ander illo ethic owen aria usk embo inar olde arch ision ettle ova",
    ),
    _names(
        "Ki Sa Ro Mi Te Lu Ba No Fe Du Zi Pa Ju We Ha Go",
        "ran vel tix mond lune dor pax rio sset nova quin bay mer zell",
    ),
)
_OTHER = Names(
    _names(
        "Ald Bran Crev Dol Ebb Fros Gil Hask Ing Jor Kest Lum Mirr Nev Ost Plen Rask Sten Thal Urb Vann Wim Zor",
        "asta elin icor omir uvane ander ofel ymo endra iska umber oline",
    ),
    _names(
        "Bri Cae Dae Eli Fio Gra Ilo Kae Lio Mae Nea Ori Pri Sui Tri Vio",
        "dan fex gor lith mar nid phin rell sten thos vann wick",
    ),
)


def names_of(world: int) -> Names:
    """Return the names of a shop's goods; those of the shop that scores are about, 0, stand in no other one."""
    return _OTHER if world else _SCORED
