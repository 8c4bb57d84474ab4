"""The invented shop: what it sells and the words in which customers and product pages speak of it.

Plain data only. Every line of a table is ``key: surface forms``; surface forms of one key are synonyms, and the
generator draws the form for a query and for a document independently, so that the models must learn the synonyms.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Category:
    """A kind of product. Categories of one ``family`` are near misses for each other (boots for sandals)."""

    key: str
    family: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Attribute:
    """A property a customer may ask for, as words before the noun (``adjectives``) or after it (``phrases``)."""

    key: str
    dimension: str
    adjectives: tuple[str, ...]
    phrases: tuple[str, ...]


# family > category: names
_CATEGORIES = """
footwear > boots: boots, boots, ankle boots, boot
footwear > running_shoes: running shoes, sneakers, trainers, sneaker
footwear > sandals: sandals, flip flops, sandal
footwear > slippers: slippers, house shoes
footwear > dress_shoes: dress shoes, loafers, oxford shoes
outerwear > jacket: jacket, jackets, coat, parka
outerwear > rain_coat: raincoat, rain jacket, poncho
outerwear > vest: vest, gilet, body warmer
clothing > sweater: sweater, jumper, pullover, sweaters
clothing > trousers: trousers, pants, slacks
clothing > jeans: jeans, denim jeans
clothing > t_shirt: t-shirt, tee, tshirt, t-shirts
clothing > shirt: shirt, blouse, shirts
clothing > dress: dress, gown, dresses
clothing > socks: socks, pair of socks, sock
accessories > gloves: gloves, mittens, glove
accessories > hat: hat, cap, beanie
accessories > scarf: scarf, shawl
accessories > belt: belt, belts
accessories > sunglasses: sunglasses, shades
accessories > watch: watch, wristwatch, watches
bags > backpack: backpack, rucksack, backpacks
bags > suitcase: suitcase, luggage, trolley case
bags > handbag: handbag, purse, shoulder bag
bags > wallet: wallet, card holder
camping > tent: tent, tents, shelter
camping > sleeping_bag: sleeping bag, sleeping bags
camping > stove: camping stove, gas cooker
camping > lantern: lantern, camp light, head torch
electronics > laptop: laptop, notebook computer, laptops, notebook
electronics > phone: phone, smartphone, mobile phone
electronics > headphones: headphones, earphones, headset, earbuds
electronics > speaker: speaker, loudspeaker, speakers
electronics > camera: camera, digital camera, cameras
electronics > tablet: tablet, tablet computer
electronics > keyboard: keyboard, keyboards
device_cases > phone_case: phone case, phone cover
device_cases > laptop_sleeve: laptop sleeve, laptop cover
kitchen > pan: frying pan, skillet, pan
kitchen > kettle: kettle, water boiler
kitchen > knife: kitchen knife, chef knife
kitchen > coffee_maker: coffee maker, coffee machine, espresso machine
kitchen > bottle: water bottle, flask, drinking bottle
furniture > desk: desk, writing table, desks
furniture > chair: chair, seat, chairs
furniture > sofa: sofa, couch
furniture > lamp: lamp, table light, lamps
furniture > bookcase: bookcase, book shelf, shelving
furniture > mattress: mattress, mattresses
toys > puzzle: puzzle, jigsaw
toys > board_game: board game, family game
toys > bicycle: bicycle, bike, bikes
toys > ball: ball, football
"""

# dimension > attribute: adjectives | phrases
_ATTRIBUTES = """
colour > red: red, crimson, scarlet | in red
colour > blue: blue, navy, azure | in blue, in navy
colour > green: green, olive | in green
colour > black: black, jet black | in black
colour > white: white, ivory | in white
colour > grey: grey, gray, charcoal | in grey, in gray
colour > brown: brown, tan, chestnut | in brown
colour > yellow: yellow, mustard | in yellow
colour > pink: pink, rose pink | in pink
material > leather: leather, genuine leather | made of leather
material > wool: wool, woollen, merino wool | made from wool, knitted in wool
material > cotton: cotton, organic cotton | made of cotton
material > mesh: mesh, breathable mesh | with a mesh upper
material > wood: wooden, wood, oak | made of wood, in oak
material > metal: metal, steel, stainless steel | made of steel
material > plastic: plastic, acrylic | made of plastic
material > canvas: canvas, linen | made of canvas
season > winter: winter, cold weather | for winter, for cold days, for the snow, in winter
season > summer: summer, hot weather | for summer, for hot days, in summer
season > spring: spring | for spring, in spring
season > autumn: autumn, fall | for autumn, in the fall
price > cheap: cheap, affordable, budget, inexpensive | at a low price, on a budget, under 20 euros
price > premium: premium, luxury, high-end, expensive | of the finest quality
audience > men: men's, mens | for men, for him
audience > women: women's, ladies | for women, for her
audience > kids: kids, children's, childrens | for kids, for children, for my son, for my daughter
use > hiking: hiking, trekking, trail | for hiking, for walks, for mountain trails, for hikes
use > running: running, jogging | for running, for jogging, for roads
use > office: office, work, business | for the office, for work
use > travel: travel, travelling | for travel, for holidays, for trips
use > gaming: gaming | for gaming, for video games
use > school: school, student | for school, for students
use > sport: sport, gym, fitness | for the gym, for sport, for training
use > party: party, evening | for a party, for weddings
use > beach: beach, swimming | for the beach, for swimming
use > garden: garden, outdoor | for the garden, for the outdoors
use > home: home, everyday | for home, for everyday use
feature > waterproof: waterproof, watertight, water resistant | that keep water out, with a waterproof membrane
feature > insulated: insulated, warm, thermal | with warm lining, that keep you warm, to keep warm
feature > light: lightweight, light | that weigh little, with a low weight
feature > foldable: foldable, folding, collapsible | that fold flat
feature > wireless: wireless, bluetooth, cordless | with bluetooth, without cables
feature > durable: durable, sturdy, tough, robust | built to last
feature > comfortable: comfortable, comfy, soft | with soft padding
feature > slim: slim, thin, compact | with a small size
feature > large: large, big, spacious | in extra large
feature > grippy: grippy, non-slip | with a grippy sole, with good grip
feature > rechargeable: rechargeable | with a long battery life, with usb charging
feature > recycled: recycled, sustainable, eco-friendly | from recycled materials
feature > vintage: vintage, retro, classic | in a retro style
feature > quiet: quiet, silent, noiseless | with low noise
"""

# Which attributes make sense for which family; a tent with a "party" use would only teach noise.
_FAMILY_RULES = """
footwear: colour material season price audience hiking running office sport party beach home waterproof insulated \
light durable comfortable grippy recycled vintage
outerwear: colour material season price audience hiking running office travel waterproof insulated light durable \
comfortable recycled vintage slim large
clothing: colour material season price audience hiking running office sport party home school insulated light \
comfortable recycled vintage slim large
accessories: colour material season price audience hiking office party beach sport waterproof insulated light durable \
comfortable vintage slim
bags: colour material price audience hiking office travel school beach sport waterproof light foldable durable slim \
large recycled vintage
camping: colour season price hiking travel garden waterproof insulated light foldable durable large rechargeable slim
electronics: colour price office travel gaming school home waterproof light wireless durable slim large rechargeable \
quiet vintage
device_cases: colour material price travel office waterproof light durable slim recycled vintage
kitchen: colour material price home travel office light durable large slim quiet insulated recycled vintage
furniture: colour material price kids office home garden gaming school foldable durable comfortable large slim \
recycled vintage
toys: colour material price kids men women school home garden travel beach light durable foldable large vintage
"""

# One product has one value of these; asking for another value is a contradiction and not merely a gap.
EXCLUSIVE_DIMENSIONS = ("colour", "material", "season", "price", "audience")

BRANDS = ("norvik", "alpenglow", "brightfold", "casaluna", "torvald", "mirelle", "quantor", "hartwood", "zephyra")


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _rows(table: str) -> list[tuple[str, str]]:
    rows = [line.split(":", 1) for line in table.strip().splitlines()]
    return [(head.strip(), tail.strip()) for head, tail in rows]


def _categories() -> dict[str, Category]:
    found = {}
    for head, tail in _rows(_CATEGORIES):
        family, key = (part.strip() for part in head.split(">"))
        found[key] = Category(key, family, _split(tail))
    return found


def _attributes() -> dict[str, Attribute]:
    found = {}
    for head, tail in _rows(_ATTRIBUTES):
        dimension, key = (part.strip() for part in head.split(">"))
        adjectives, phrases = tail.split("|")
        found[key] = Attribute(key, dimension, _split(adjectives), _split(phrases))
    return found


def _family_rules() -> dict[str, tuple[Attribute, ...]]:
    rules = {}
    for family, tail in _rows(_FAMILY_RULES):
        allowed = set(tail.split())
        rules[family] = tuple(a for a in ATTRIBUTES.values() if a.key in allowed or a.dimension in allowed)
    return rules


CATEGORIES = _categories()
ATTRIBUTES = _attributes()
FAMILY_ATTRIBUTES = _family_rules()
