"""The shop's help centre: topics, the ways to ask for them, and the sentences their articles are made of.

Asking is split into ``tasks`` (they follow "how do I ...") and ``subjects`` (they follow "information about ...");
``PREFIXES`` turn either into a question. The last entry or entries of each list are held out from training: see
``training_part`` and ``held_out_part``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Topic:
    """One subject of the help centre, the intent it belongs to, and its wording."""

    key: str
    intent: str
    tasks: tuple[str, ...]
    subjects: tuple[str, ...]
    sentences: tuple[str, ...]


def training_part(items: Sequence[T]) -> Sequence[T]:
    """Return what training may see: all but the last sixth (at least one entry) of a list."""
    return items[: len(items) - max(1, len(items) // 6)]


def held_out_part(items: Sequence[T]) -> Sequence[T]:
    """Return the last sixth (at least one entry) of a list, which only the evaluation sees."""
    return items[len(items) - max(1, len(items) // 6) :]


TASK_PREFIXES = (
    "how do i", "how can i", "i want to", "can i", "i need to", "help me", "steps to", "is it possible to",
    "what do i do to", "i would like to", "please help me", "where can i", "how to", "", "could you tell me how to",
    "hi, how do i", "what is the way to", "i am trying to",
)  # fmt: skip
SUBJECT_PREFIXES = (
    "", "", "what about the", "question about", "information on", "tell me about the", "what is the", "what are the",
    "i have a question about", "your", "hello, about the", "details of the", "i would like to know the",
)  # fmt: skip

# topic > intent / tasks / subjects / sentences of articles; items end with ";"
_TOPICS = """
returns > returns
send back an item; return my order; return the {noun} i bought; get my money back; get a refund; bring back a \
purchase; send my {noun} back; ask for a refund; return something that does not fit; return a gift; give back the \
{noun}; get my money returned; hand back an unwanted {noun}; be refunded for my order
return policy; refund policy; refund; return label; money back guarantee; refund for my {noun}; return period; \
returns and refunds
To return an order, print the label and drop the parcel at any post office within 30 days.; You can send items back \
within 30 days and get your money back.; Refunds are paid to the original payment method within five working days.; \
Start a return in your account, choose a reason and print the return label.; Items must be unused and in the original \
box to be refunded.; How to return an order: pack the item and attach the label.; Returning a gift gives store credit \
instead of money.; Your refund is sent once the returned parcel reaches our warehouse.; Returned goods are checked \
before we give your money back.
exchange > returns
exchange my {noun} for another size; swap the {noun} for a different colour; change the size of the {noun} i received; \
replace the wrong item; get a replacement; exchange an item; swap an item for a bigger one; trade my {noun} for a \
smaller size
exchange policy; exchange for another size; wrong size; replacement for the wrong item; swapping sizes; exchange of \
items
To exchange an item for another size, pick the new size and we send it for free.; Swaps for a different colour are \
possible while stock lasts.; If we sent the wrong item we replace it at no cost.; An exchange takes about a week from \
the day we receive the old item.; Choose exchange on the form and enter the size you need.; Exchanging goods in a shop \
needs the receipt.
damage > returns
report a broken {noun}; complain about a damaged item; claim the warranty; get my faulty {noun} repaired; report that \
my {noun} arrived damaged; repair a defective {noun}; make a warranty claim; complain because my {noun} broke
warranty; broken {noun}; damaged parcel; faulty item; defective product; guarantee for my {noun}; warranty claim
All products have a two year warranty against defects.; Send us a photo of the damaged item and we will repair or \
replace it.; A faulty product can be repaired free of charge during the warranty.; Report a broken item within 14 \
days.; The guarantee does not cover normal wear.; Defective goods are repaired in our own workshop.
tracking > order_status
track my order; find out where my parcel is; see where my order is; check the status of my order; follow my package; \
know when my {noun} will arrive; check if my order was shipped; locate my package; see when my delivery comes; \
look up my order number; trace my {noun} delivery
order status; where is my order; where is my package; tracking number; my parcel has not arrived; my order is late; \
when will my {noun} arrive; status of order 4821; has my order shipped; delivery status; my {noun} never came; \
still waiting for my {noun}; where is the {noun} i ordered
Track your parcel with the tracking number from the shipping email.; The order page shows the status of every order.; \
If your parcel is late, wait two days and then contact the carrier.; You get a message with a link to follow the \
package when it ships.; Check where your order is at any time under my orders.; An order marked as shipped arrives in \
two to four days.; The delivery status is updated every hour.
cancel > order_status
cancel my order; stop my order; change my order; change the delivery address of my order; cancel the {noun} i ordered \
yesterday; add an item to my order; remove a {noun} from my order; call off my order
order cancellation; cancelling an order; order changes; wrong delivery address on my order; my order was a mistake; \
cancelled order
You can cancel an order until it is packed.; Open the order and press cancel to stop it.; The delivery address of an \
order can be changed before shipping.; An order that was sent cannot be cancelled any more.; To change an order, \
cancel it and order again.; Cancelled orders are never charged.
shipping > order_status
get my order delivered faster; ship to another country; have my order delivered abroad; choose express delivery; \
get free shipping; send an order to my office; order with next day delivery; have the {noun} shipped overseas
shipping costs; delivery time; delivery options; free shipping; express delivery; shipping fee; how long does delivery \
take; how long does shipping take; international shipping
Standard delivery takes two to four days and costs four euros.; Shipping is free for orders above fifty euros.; \
Express delivery arrives the next day.; We ship to all countries of the union.; Delivery costs depend on weight and \
country.; International parcels take up to ten days to be delivered.
password > account
reset my password; change my password; log in; sign in to my account; recover my login; unlock my account; get a new \
password; log in again because i forgot my password; fix my login; restore access to my account
forgotten password; i forgot my password; password reset; login problem; cannot log in; my account is locked; sign in \
error; i can't log in to my account; lost my login details
To reset your password, click forgot password and enter your email.; We send a link to choose a new password.; An \
account is locked after five wrong logins and opens again after an hour.; A password needs at least ten characters.; \
If you cannot sign in, clear the browser and try again.; Change your password under account security.
profile > account
create an account; delete my account; close my account; change my email address; update my phone number; register; \
change my name in my profile; open an account; update my account details; unsubscribe from the newsletter; remove my \
profile; edit my personal data
account settings; my profile; personal data in my account; new account; newsletter subscription; account registration; \
email address in my account
Create an account with your email and a password.; You can delete your account in the settings.; Change your name, \
email or phone number in your profile.; Closing an account removes all personal data after 30 days.; Unsubscribe from \
the newsletter in your account settings.; Registering for an account is free.
points > account
use my loyalty points; see my points balance; join the member club; collect bonus points; spend my reward points; \
check my points in my account; redeem my points
loyalty points; member club; bonus points; points balance in my account; membership rewards; reward points
Members collect one loyalty point for every euro.; Points can be used at the checkout.; See your points balance in \
your account.; Bonus points expire after two years.; Joining the member club costs nothing.
hours > store_info
find out when you open; know when the shop closes; visit your store on sunday; know your opening times; come to the \
store in the evening; see how late the store is open; know if you are open on holidays
opening hours; opening times; what time do you open; when does the store close; are you open on sunday; closing time; \
store hours; is the shop open today; what time does the shop close; are you open on monday
Our opening hours are nine to six from monday to saturday.; All shops are closed on sundays and public holidays.; On \
thursday the store is open until nine in the evening.; The shop opens at nine in the morning.; Opening times may \
change before christmas.; The store closes at six.
location > store_info
find your store; find the nearest shop; get to your store; park near the shop; reach your shop by bus; locate a store \
in my city; drive to your store; find a branch near me
store address; store locations; nearest store; where is your shop; parking at the store; where are you located; do you \
have a shop in berlin; shop near me; directions to the store
Our main store is on market street next to the station.; Find the nearest shop with the store map.; Free parking is \
behind the building.; The bus stops in front of the shop.; We have twelve stores in eight cities.; The address of each \
branch is on the store page.
contact > store_info
contact you; speak to a person; call the store; phone customer service; write to your team; reach customer support; \
talk to someone in the shop
phone number of the store; customer service; contact details; email address of the shop; support phone number; \
telephone number
Call customer service on weekdays between eight and five.; You can chat with our team on the website.; Write to us \
with the contact form.; The phone number of each shop is on its page.; Our support team answers emails within a day.
payment > store_info
pay by invoice; pay with a credit card; pay in cash at the store; buy a gift card; use a gift card; pay in \
instalments; spend a voucher; redeem a gift card
payment methods; gift cards; which cards do you accept; gift voucher; do you take credit cards; do you accept cash; \
do you sell gift cards
We accept credit cards, bank transfer and payment by invoice.; Gift cards are sold in every shop and online.; Enter \
the gift card code at the checkout to pay with it.; Shops also take cash.; A gift voucher is valid for three years.; \
Paying in instalments is possible above one hundred euros.
"""

INTENTS = ("product_search", "order_status", "returns", "account", "store_info")


def _items(line: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in line.split(";") if item.strip())


def _topics() -> dict[str, Topic]:
    lines = _TOPICS.strip().splitlines()
    found = {}
    for head, tasks, subjects, sentences in zip(lines[0::4], lines[1::4], lines[2::4], lines[3::4], strict=True):
        key, intent = (part.strip() for part in head.split(">"))
        found[key] = Topic(key, intent, _items(tasks), _items(subjects), _items(sentences))
    return found


TOPICS = _topics()

# A neighbour topic is a poor answer rather than a wrong one (a shopper with a broken item may end up returning it).
NEIGHBOURS = {
    frozenset(pair)
    for pair in (("returns", "exchange"), ("returns", "damage"), ("exchange", "damage"), ("tracking", "shipping"),
                 ("tracking", "cancel"), ("cancel", "returns"), ("password", "profile"), ("hours", "location"),
                 ("location", "contact"))
}  # fmt: skip
