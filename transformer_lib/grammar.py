# Collected from book/appendix/grammar.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""The corpus `little_spanish`, written by a small grammar."""

import random
from functools import cache

__all__ = [
    "ADJECTIVES",
    "DETERMINERS",
    "FORMS",
    "NOUNS",
    "PATTERNS",
    "SUBJECTS",
    "VERBS",
    "agree",
    "held_out",
    "little_spanish",
    "sentence",
    "thing",
]


def _table(rows: str) -> dict[str, list[str]]:
    """Rows between commas, cells between strokes, by the first."""
    cells = [row.strip().split("/") for row in rows.split(",")]
    return {first: rest for first, *rest in cells}


# singular, plural, gender
NOUNS = _table("""
    tree/árbol/árboles/m, book/libro/libros/m, car/coche/coches/m,
    garden/jardín/jardines/m, pencil/lápiz/lápices/m,
    clock/reloj/relojes/m, hat/sombrero/sombreros/m,
    truck/camión/camiones/m, house/casa/casas/f,
    flower/flor/flores/f, apple/manzana/manzanas/f,
    chair/silla/sillas/f, table/mesa/mesas/f,
    lamp/lámpara/lámparas/f, shirt/camisa/camisas/f,
    key/llave/llaves/f""")


# masculine singular
ADJECTIVES = _table("""
    red/rojo, white/blanco, black/negro, green/verde, blue/azul,
    big/grande, small/pequeño, new/nuevo, old/viejo,
    expensive/caro""")


# he, she or it; then yo, tú, él, nosotros, ellos
VERBS = _table("""
    like/likes/me/te/le/nos/les, see/sees/veo/ves/ve/vemos/ven,
    buy/buys/compro/compras/compra/compramos/compran,
    sell/sells/vendo/vendes/vende/vendemos/venden,
    want/wants/quiero/quieres/quiere/queremos/quieren,
    have/has/tengo/tienes/tiene/tenemos/tienen,
    need/needs/necesito/necesitas/necesita/necesitamos/necesitan,
    look for/looks for/busco/buscas/busca/buscamos/buscan""")


# person as in VERBS, Spanish, whom it pleases
SUBJECTS = _table("""
    I/0//, you/1//, he/2/él/a él, she/2/ella/a ella,
    Ana/2/Ana/a Ana, the boy/2/el niño/al niño, we/3//,
    they/4/ellos/a ellos, the girls/4/las niñas/a las niñas""")


# English, masculine, feminine: before one thing, before several
_ONE = ["the/el/la", "this/este/esta", "my/mi/mi"]
_MANY = ["these/estos/estas", "my/mis/mis"]
DETERMINERS = {
    "like": (_ONE, [*_MANY, "/los/las"]),
    "be": (_ONE, [*_MANY, "the/los/las"]),
    "verb": (
        [*_ONE, "a/un/una"],
        [*_MANY, "the/los/las", "two/dos/dos", "//"],
    ),
}


FORMS = ("statement", "negation", "question")
PATTERNS = {
    "like": """{I} {sees} {it} = {a_mí} {ve} {gusta} {lo}
        {I} {do} not {see} {it} = {a_mí} no {ve} {gusta} {lo}
        {do} {I} {see} {it}? = ¿{a_mí} {ve} {gusta} {lo}?""",
    "be": """{it} {is} {red} = {lo} {es} {rojo}
        {it} {is} not {red} = {lo} no {es} {rojo}
        {is} {it} {red}? = ¿{es} {rojo} {lo}?""",
    "verb": """{I} {sees} {it} = {yo} {ve} {lo}
        {I} {do} not {see} {it} = {yo} no {ve} {lo}
        {do} {I} {see} {it}? = ¿{ve} {yo} {lo}?""",
}


def agree(adjective: str, noun: str, plural: bool = False) -> str:
    """An English adjective's Spanish form beside an English noun.

    Chapter: grammar-sentences
    """
    word = ADJECTIVES[adjective][0]
    if NOUNS[noun][2] == "f" and word[-1] == "o":
        word = word[:-1] + "a"
    many = "s" if word[-1] in "aeo" else "es"
    return word + many if plural else word


def thing(
    noun: str, determiner: str, plural: bool, adjective: str = ""
) -> tuple[str, str]:
    """A noun with its company, in English and in Spanish.

    Args:
        noun, adjective: from `NOUNS` and `ADJECTIVES`, or no
            adjective.
        determiner: as in `DETERMINERS`, such as "the/el/la".

    Chapter: grammar-sentences
    """
    article, *articles = determiner.split("/")
    english = f"{adjective} {noun}{'s' if plural else ''}".strip()
    if article == "a" and english[0] in "aeiou":
        article = "an"
    singular, several, gender = NOUNS[noun]
    spanish = articles[gender == "f"], several if plural else singular
    agreed = [agree(adjective, noun, plural)] if adjective else []
    return f"{article} {english}", " ".join([*spanish, *agreed])


def sentence(
    subject: str,
    partner: str,
    noun: str,
    determiner: str,
    plural: bool = False,
    adjective: str = "",
    form: str = "statement",
) -> tuple[str, str]:
    """A sentence in English and in Spanish.

    Args:
        subject: one of `SUBJECTS`; not used with "is".
        partner: what the noun meets: one of `VERBS`, or one of
            `ADJECTIVES` for "the house is red".
        noun, determiner, plural, adjective: as `thing` takes them.
        form: one of `FORMS`.

    Chapter: grammar-sentences
    """
    person, who, whom = SUBJECTS[subject]
    english, spanish = thing(noun, determiner, plural, adjective)
    words = {"I": subject, "yo": who, "a_mí": whom, "it": english}
    words |= {"lo": spanish, "gusta": "gustan" if plural else "gusta"}
    if partner in ADJECTIVES:
        words |= {
            "red": partner,
            "rojo": agree(partner, noun, plural),
        }
        words |= {"is": "are" if plural else "is"}
        words |= {"es": "son" if plural else "es"}
    else:
        third, *persons = VERBS[partner]
        alone = person == "2"
        words |= {"see": partner, "sees": third if alone else partner}
        words |= {"do": "does" if alone else "do"}
        words |= {"ve": persons[int(person)]}
    patterns = PATTERNS[_kind(partner)].split("\n")
    both = patterns[FORMS.index(form)].format(**words).split("=")
    left, right = [" ".join(side.split()) for side in both]
    right = right.replace("¿ ", "¿")
    start = right[0] == "¿"  # the capital comes after it
    return (
        left[0].upper() + left[1:],
        right[:start] + right[start].upper() + right[start + 1 :],
    )


def _kind(partner: str) -> str:
    """The kind of sentence that a verb or adjective makes."""
    if partner == "like":
        return "like"
    return "be" if partner in ADJECTIVES else "verb"


def held_out(noun: str, partner: str) -> bool:
    """Whether a noun meets this verb or adjective in the test alone.

    That is one combination in eight, spread so that every word has
    many other partners in training.

    Chapter: grammar-splits
    """
    partners = [*VERBS, *ADJECTIVES]
    place = list(NOUNS).index(noun) + partners.index(partner)
    return place % 8 == 0


def _drawn(chance: random.Random) -> tuple[tuple[str, str], bool]:
    """A random sentence pair, and whether it belongs to the test."""

    def pick(*choices):  # random() alone is the same in every Python
        return choices[int(chance.random() * len(choices))]

    adjective = pick("", pick(*ADJECTIVES))
    partner = {
        "like": "like",
        "be": pick(*(a for a in ADJECTIVES if a != adjective)),
        "verb": pick(*(verb for verb in VERBS if verb != "like")),
    }[pick("like", "like", "verb", "verb", "be")]
    noun, plural = pick(*NOUNS), pick(False, True)
    determiner = pick(*DETERMINERS[_kind(partner)][plural])
    form = pick("statement", *FORMS)
    pair = sentence(
        pick(*SUBJECTS),
        partner,
        noun,
        determiner,
        plural,
        adjective,
        form,
    )
    met = [partner, adjective] if adjective else [partner]
    return pair, any(held_out(noun, word) for word in met)


@cache
def _splits() -> dict[str, dict[str, str]]:
    """The Spanish of each English sentence, by split."""
    sizes = {"train": 5000, "validation": 500, "test": 500}
    splits = {name: {} for name in sizes}
    trees = sentence("I", "like", "tree", "/los/las", plural=True)
    splits["test"].update([trees])
    chance = random.Random(2017)
    while any(len(splits[name]) < sizes[name] for name in sizes):
        (english, spanish), test = _drawn(chance)
        full = len(splits["validation"]) == sizes["validation"]
        name = "train" if full else "validation"
        name = "test" if test else name
        new = not any(english in pairs for pairs in splits.values())
        if new and len(splits[name]) < sizes[name]:
            splits[name][english] = spanish
    return splits


def little_spanish(split: str = "") -> list[tuple[str, str]]:
    """English-Spanish pairs: 6,000 in all, always the same.

    No English sentence stands twice. Every sentence of "test" has a
    combination that is `held_out`; no other sentence has one.

    Args:
        split: "train", "validation" or "test"; "" for all.

    Chapter: grammar-splits
    """
    splits = _splits()
    names = [split] if split else splits
    return [pair for name in names for pair in splits[name].items()]
