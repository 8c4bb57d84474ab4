"""Everyday English words from outside the shop, and made-up ones.

The overlap exercises (``overlap.py``) draw from here so that the reranker learns the general rule "a shared content
word raises the score, a shared stop word does not" rather than only the vocabulary of one catalogue.
"""

from __future__ import annotations

import random


def _words(text: str) -> list[str]:
    return text.split()


STOP_WORDS = _words(
    "the a an of in on at for to and or with from by is are was were be it its this that these those there here "
    "what which who where when why how do does did can could will would should has have had not no as into over "
    "about some any all many most more very i my me you your we our they their he she his her"
)

CONTENT_WORDS = _words(
    # places
    "france paris germany berlin italy rome spain madrid japan tokyo china beijing india delhi brazil egypt cairo "
    "canada ottawa mexico norway oslo sweden stockholm finland helsinki greece athens poland warsaw portugal lisbon "
    "russia moscow turkey ankara kenya nairobi peru lima cuba havana austria vienna ireland dublin scotland london "
    "england america europe africa asia australia sydney amsterdam brussels geneva texas california chicago boston "
    # nature
    "river mountain ocean forest desert island valley lake volcano glacier rain snow storm wind cloud thunder sun moon "
    "star planet earth mars jupiter galaxy comet gravity tree flower rose grass leaf root seed fruit apple banana "
    "orange lemon grape cherry peach potato tomato onion carrot bean rice wheat corn bread butter cheese milk egg meat "
    "chicken beef pork fish salmon soup salad cake chocolate sugar salt pepper honey tea coffee wine beer juice dog "
    "cat horse cow sheep pig goat rabbit mouse rat lion tiger elephant bear wolf fox monkey snake lizard frog turtle "
    "whale dolphin shark eagle owl parrot penguin duck bee ant spider butterfly mosquito dinosaur "
    # people and society
    "king queen president minister mayor soldier doctor nurse teacher pupil lawyer judge farmer baker painter writer "
    "author poet singer actor dancer engineer scientist pilot sailor driver father mother brother sister uncle cousin "
    "baby friend neighbour family village city capital country nation border population language religion church "
    "temple castle palace bridge tower museum library theatre hospital prison factory airport station harbour street "
    "road railway market bank court government parliament election vote law tax war peace army treaty revolution "
    "empire republic history century ancient modern culture music song guitar piano violin drum opera film novel poem "
    "story newspaper magazine letter language grammar alphabet sentence word verb noun "
    # science and technology
    "physics chemistry biology mathematics algebra geometry number equation theorem proof atom molecule electron "
    "proton nucleus energy force speed light sound heat temperature pressure volume mass weight length height width "
    "distance area metal iron gold silver copper carbon oxygen hydrogen nitrogen water acid poison medicine vaccine "
    "virus bacteria disease cancer fever pain heart brain lung liver kidney blood bone muscle skin eye ear nose tooth "
    "cell gene protein vitamin computer software program function variable memory processor network server database "
    "internet website browser file folder code compiler algorithm data model neural training inference engine motor "
    "battery cable robot satellite rocket telescope microscope radio television cpu gpu cluster container kubernetes "
    "python java linux windows token vector matrix tensor gradient latency throughput request response queue cache "
    # things and actions
    "house garden kitchen window door wall roof floor stairs table box bag bottle glass cup plate spoon fork hammer "
    "nail screw rope ladder wheel car bus train plane boat ship truck ticket map compass clock calendar pencil paper "
    "book page picture photo mirror candle fire smoke ash stone rock sand clay brick cement paint oil gas coal wood "
    "money price cost profit loss debt loan salary job office company business industry trade stock share invest "
    "build break buy sell cook bake boil eat drink sleep dream wake walk run jump swim fly climb drive ride sail throw "
    "catch hit kick push pull lift carry drop open close lock read write speak listen learn teach study think know "
    "forget remember find lose search win play fight help save destroy create invent discover measure count add "
    "subtract multiply divide compare choose decide plan start stop finish wait hurry travel visit stay leave arrive "
    "return send receive give take borrow lend repair clean wash dry cut sew draw sing dance laugh cry smile "
    # qualities and time
    "big small long short tall wide narrow deep shallow heavy fast slow hot cold warm cool wet old young new rich poor "
    "strong weak hard soft loud quiet bright dark clean dirty full empty happy sad angry afraid brave clever stupid "
    "kind cruel honest famous popular rare common strange simple complex easy difficult safe dangerous healthy sick "
    "free busy early late first last next monday tuesday wednesday thursday friday saturday sunday january february "
    "march april june july august september october november december morning evening night day week month year hour "
    "minute second summer winter autumn spring north south east west left right champion football tennis chess olympic "
    "score goal team player coach league match trophy born died founded located known largest highest longest deepest"
)

# Building blocks of words that nobody has seen before.
_SYLLABLES = _words(
    "ba be bo bra ca ce co cra da de do dra fa fe fi fo ga ge go gra ha he ho ja jo ka ke ki ko la le li lo lu ma me "
    "mi mo mu na ne ni no nu pa pe pi po pra qua ra re ri ro ru sa se si so sta ste sto ta te ti to tra tri ul um un "
    "va ve vi vo wa we wi wo xa ya yo za ze zo ber cal den fer gar hol jan ker lan mar nor per ron ser tal ver win zen"
)


def invented_word(rng: random.Random) -> str:
    """Return a word of two to four random syllables: it splits into several pieces, like any unseen real word."""
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 4)))


def content_word(rng: random.Random) -> str:
    """Return an everyday word, or in three cases of ten an invented one (sometimes a number, as in model names)."""
    draw = rng.random()
    if draw < 0.68:
        return rng.choice(CONTENT_WORDS)
    if draw < 0.95:
        return invented_word(rng)
    return str(rng.randint(2, 2999))
