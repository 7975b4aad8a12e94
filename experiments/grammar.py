"""The grammar that writes little Spanish, and the sentences about people.

    python experiments/grammar.py    write both files of the package

Sixteen nouns, ten adjectives, eight verbs and nine subjects fill nine
patterns. One in eight combinations of a noun with a verb or an adjective
occurs in the test alone, so a test sentence has known words in a new
combination. Each English sentence has exactly one Spanish translation,
and each Spanish sentence one English one: "you" is always tú, and él,
ella and ellos are always written. With gustar, things in general take an
article ("trees" is los árboles); after any other verb they take none.
"""

import random
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "transformer_lib" / "data"


def table(rows):
    """Rows end at commas, cells at slashes; the first cell is the key."""
    cells = [row.strip().split("/") for row in rows.split(",")]
    return {first: rest for first, *rest in cells}


# singular, plural, gender
NOUNS = table("""
    tree/árbol/árboles/m, book/libro/libros/m, car/coche/coches/m,
    garden/jardín/jardines/m, pencil/lápiz/lápices/m,
    clock/reloj/relojes/m, hat/sombrero/sombreros/m,
    truck/camión/camiones/m, house/casa/casas/f,
    flower/flor/flores/f, apple/manzana/manzanas/f,
    chair/silla/sillas/f, table/mesa/mesas/f,
    lamp/lámpara/lámparas/f, shirt/camisa/camisas/f,
    key/llave/llaves/f""")

# masculine singular
ADJECTIVES = table("""
    red/rojo, white/blanco, black/negro, green/verde, blue/azul,
    big/grande, small/pequeño, new/nuevo, old/viejo,
    expensive/caro""")

# he, she or it; then yo, tú, él, nosotros, ellos
VERBS = table("""
    like/likes/me/te/le/nos/les, see/sees/veo/ves/ve/vemos/ven,
    buy/buys/compro/compras/compra/compramos/compran,
    sell/sells/vendo/vendes/vende/vendemos/venden,
    want/wants/quiero/quieres/quiere/queremos/quieren,
    have/has/tengo/tienes/tiene/tenemos/tienen,
    need/needs/necesito/necesitas/necesita/necesitamos/necesitan,
    look for/looks for/busco/buscas/busca/buscamos/buscan""")

# person as in VERBS, Spanish (if it is said), whom it pleases
SUBJECTS = table("""
    I/0//, you/1//, he/2/él/a él, she/2/ella/a ella,
    Ana/2/Ana/a Ana, the boy/2/el niño/al niño, we/3//,
    they/4/ellos/a ellos, the girls/4/las niñas/a las niñas""")

# English, masculine, feminine: before one thing, before several
ONE = ["the/el/la", "this/este/esta", "my/mi/mi"]
MANY = ["these/estos/estas", "my/mis/mis"]
DETERMINERS = {
    "like": (ONE, [*MANY, "/los/las"]),
    "be": (ONE, [*MANY, "the/los/las"]),
    "verb": (
        [*ONE, "a/un/una"],
        [*MANY, "the/los/las", "two/dos/dos", "//"],
    ),
}


# {sees} agrees with the subject, {see} is the plain form; {lo} is the
# Spanish of {it}, {a_mí} whom it pleases, {me} one of me, te, le, nos, les
FORMS = ("statement", "negation", "question")
PATTERNS = {
    "like": """{I} {sees} {it} = {a_mí} {me} {gusta} {lo}
        {I} {do} not {see} {it} = {a_mí} no {me} {gusta} {lo}
        {do} {I} {see} {it}? = ¿{a_mí} {me} {gusta} {lo}?""",
    "be": """{it} {is} {red} = {lo} {es} {rojo}
        {it} {is} not {red} = {lo} no {es} {rojo}
        {is} {it} {red}? = ¿{es} {rojo} {lo}?""",
    "verb": """{I} {sees} {it} = {yo} {ve} {lo}
        {I} {do} not {see} {it} = {yo} no {ve} {lo}
        {do} {I} {see} {it}? = ¿{ve} {yo} {lo}?""",
}


def agree(adjective, noun, plural):
    """An English adjective's Spanish form beside an English noun."""
    word = ADJECTIVES[adjective][0]
    if NOUNS[noun][2] == "f" and word[-1] == "o":
        word = word[:-1] + "a"
    many = "s" if word[-1] in "aeo" else "es"
    return word + many if plural else word


def thing(noun, determiner, plural, adjective):
    """A noun with article and adjective, in English and Spanish."""
    if noun in SUBJECTS:  # a person, seen or sought
        return noun, SUBJECTS[noun][2]
    article, *articles = determiner.split("/")
    english = f"{adjective} {noun}{'s' if plural else ''}".strip()
    if article == "a" and english[0] in "aeiou":
        article = "an"
    singular, several, gender = NOUNS[noun]
    masculine, feminine = articles
    spanish = [feminine if gender == "f" else masculine]
    spanish.append(several if plural else singular)
    if adjective:
        spanish.append(agree(adjective, noun, plural))
    return f"{article} {english}", " ".join(spanish)


def kind(partner):
    """The kind of sentence that a verb or adjective makes."""
    if partner == "like":
        return "like"
    return "be" if partner in ADJECTIVES else "verb"


def sentence(
    subject,
    partner,
    noun,
    determiner,
    plural=False,
    adjective="",
    form="statement",
):
    """A sentence in English and in Spanish."""
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
        is_third = person == "2"
        words |= {"see": partner, "sees": third if is_third else partner}
        words |= {"do": "does" if is_third else "do"}
        by_person = persons[int(person)]  # veo, ves, ... or me, te, ...
        words |= {"ve": by_person, "me": by_person}
    patterns = PATTERNS[kind(partner)].split("\n")
    both = patterns[FORMS.index(form)].format(**words).split("=")
    left, right = [" ".join(side.split()) for side in both]
    right = right.replace("¿ ", "¿")
    start = 1 if right[0] == "¿" else 0  # the capital's place
    return (
        left[0].upper() + left[1:],
        right[:start] + right[start].upper() + right[start + 1 :],
    )


def held_out(noun, partner):
    """Whether a noun meets this partner only in the test."""
    partners = [*VERBS, *ADJECTIVES]
    place = list(NOUNS).index(noun) + partners.index(partner)
    return place % 8 == 0


def drawn(chance):
    """A random sentence pair, and whether it belongs to the test."""

    def pick(*choices):  # random() is the same in every Python
        return choices[int(chance.random() * len(choices))]

    adjective = pick("", pick(*ADJECTIVES))
    partners = {
        "like": "like",
        "be": pick(*(a for a in ADJECTIVES if a != adjective)),
        "verb": pick(*(verb for verb in VERBS if verb != "like")),
    }
    chosen = pick("like", "like", "verb", "verb", "be")
    partner = partners[chosen]
    noun, plural = pick(*NOUNS), pick(False, True)
    determiner = pick(*DETERMINERS[kind(partner)][plural])
    form = pick("statement", *FORMS)  # half are statements
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


def draw_splits():
    """The Spanish of each English sentence, by split."""
    sizes = {"train": 5000, "validation": 500, "test": 500}
    splits = {name: {} for name in sizes}
    pair = sentence("I", "like", "tree", "/los/las", plural=True)
    english, spanish = pair
    splits["test"][english] = spanish
    chance = random.Random(2017)
    while any(len(splits[name]) < sizes[name] for name in sizes):
        (english, spanish), test = drawn(chance)
        full = len(splits["validation"]) == sizes["validation"]
        name = "train" if full else "validation"
        name = "test" if test else name
        new = not any(english in pairs for pairs in splits.values())
        if new and len(splits[name]) < sizes[name]:
            splits[name][english] = spanish
    return splits


def people():
    """Sentences in which people see, need or seek people, by split."""
    splits = {"train": {}, "test": {}}
    for verb in "see", "need", "look for":
        for who in SUBJECTS:
            for whom in "Ana", "the boy", "the girls":
                if who == whom:
                    continue
                test = {who, whom} == {"Ana", "the boy"}
                pairs = splits["test" if test else "train"]
                for form in FORMS:
                    pair = sentence(who, verb, whom, "//", form=form)
                    english, spanish = pair
                    pairs[english] = spanish
    return splits


def files():
    """Each file's text, by its name: split, English and Spanish."""
    return {
        f"{name}.tsv": "".join(
            f"{part}\t{english}\t{spanish}\n"
            for part, pairs in parts.items()
            for english, spanish in pairs.items()
        )
        for name, parts in {
            "little_spanish": draw_splits(),
            "little_people": people(),
        }.items()
    }


if __name__ == "__main__":
    for name, text in files().items():
        (DATA / name).write_bytes(text.encode())
        print(f"{name}: {text.count(chr(10)):,} pairs")
