"""The words of reviews: targets, and what is said of them, in English and Korean.

Plain data. Behind a ``|`` stand words that training never sees. Korean predicates are written as
``stem/form in -아 or -어/form before a noun``, nouns as ``noun=``; ``absa_korean.py`` makes the other forms.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """Words of one kind: for training, and held out."""

    known: tuple[str, ...]
    unseen: tuple[str, ...] = ()


def _read(line: str) -> Words:
    known, _, unseen = line.partition("|")
    return Words(*(tuple(word for part in half.split(",") if (word := part.strip())) for half in (known, unseen)))


def _table(text: str) -> dict[str, Words]:
    """Words by key; a line that begins with a space goes on with the key before it."""
    entries = text.strip().replace("\n ", " ").splitlines()
    return {key: _read(words) for key, _, words in (entry.partition(":") for entry in entries)}


# Targets that are of this aspect whatever is said of them.
TERMS_EN = _table("""
food:
    food, food, pasta, pizza, steak, burger, salad, soup, bread, dessert, cake, coffee, tea, wine, beer, sushi,
    noodles, rice, chicken, fish, seafood, breakfast, breakfast buffet, dinner, lunch, buffet, menu, dishes, dish,
    meal, sauce, fries, sandwich, cheese, curry, tacos, ice cream, cocktails, appetizer, portions, ramen, dumplings,
    bibimbap, kimchi, toast, pancakes, eggs, lamb, pork belly, fried chicken, main course, tuna tartare,
    chocolate mousse, vegetables, broth, meat, shrimp pasta, crab cakes, lemonade, espresso, grilled salmon,
    garlic bread, bagel, muffin, brownie, pie, donut, omelette, bacon, sausage, ribs, wings, meatballs, hummus,
    falafel, burrito, quesadilla, nachos, guacamole, spring rolls, tempura, udon, gyoza, pho, dim sum, duck, turkey,
    ham, clams, mussels, crab, scallops, calamari, salmon, tuna, tofu, mushrooms, potatoes, corn, gravy, dressing,
    butter, jam, yogurt, fruit, smoothie, latte, cappuccino, americano, juice, soda, margarita, whiskey, champagne,
    starters, side dishes, specials, tasting menu, brunch, set menu, snacks, ingredients, food quality, flavor,
    taste, drinks | risotto, lasagna, oysters, tiramisu, croissants, lobster bisque, fried rice, cheesecake,
    tofu stew, waffles, brisket, gnocchi, pad thai
service:
    service, service, staff, staff, waiter, waitress, server, manager, receptionist, reception, host, owner,
    bartender, check-in, room service, employees, front desk, chef, housekeeper, delivery, hotel staff,
    customer service, waiters, table service, valet, desk clerk, booking team, team, supervisor, driver,
    security guard, sommelier, busboy, cook, bellboy, attendants, waitstaff, response time, wait time,
    customer support, personnel, welcome, greeting, serving staff, management, lady at the counter, guy at the bar
    | concierge, cashier, hostess, porter, checkout process, kitchen crew, doorman
price:
    price, prices, price, bill, cost, value, value for money, fee, rates, room rate, cover charge, deal,
    service charge, parking fee, lunch price, wine prices, resort fee, menu prices, drink prices, price point,
    price range, amount, tab, total, nightly rate, admission, entry fee, markup, set price, delivery fee,
    price for the portion, cost of parking | tariff, pricing, surcharge, price tag, corkage
view:
    view, view, sea view, ocean view, city view, night view, scenery, sunset, skyline, view from the window,
    terrace view, river view, mountain view, rooftop view, view from our room, view from the balcony, lake view,
    lookout, balcony view, valley view, park view, street view, pool view, bay view, sunrise, seascape, backdrop,
    outlook, window view, view of the bridge | panorama, vista, harbor view, landscape, garden view
location:
    location, location, neighborhood, area, parking, parking lot, access, spot, address, street, way to the station,
    subway connection, airport shuttle, walk to the beach, part of town, public transport, site,
    walk from the station, distance to downtown, commute, metro access, bus stop, beach access, neighbourhood,
    garage, proximity to the airport, directions | vicinity, bus connection, district, surroundings, position
cleanliness:
    cleanliness, hygiene, housekeeping, cleaning | sanitation, tidiness
atmosphere:
    atmosphere, atmosphere, ambience, vibe, decor, music, interior, lighting, mood, seating, furniture,
    interior design, playlist, garden, lounge, live band, lobby, patio, dining room, decoration, tone, setting,
    style, aesthetic, acoustics, crowd, live music, piano music, fireplace, terrace, courtyard, theme, noise,
    energy, feel, outdoor seating, look of the place | soundtrack, ambiance, furnishings, background music,
    colour scheme
""")
# Targets that say nothing of the aspect or very little; it is in what is said of them.
OPEN_EN = _read(
    "room, place, restaurant, hotel, cafe, bar, rooms, this place, our room, suite, shop, resort, motel, bakery, "
    "diner, guesthouse, apartment, this restaurant, this hotel, establishment, coffee shop, steakhouse, lodge | "
    "pub, hostel, bistro, tavern"
)
CLEAN_EN = _read(
    "bathroom, toilet, floor, table, tables, sheets, towels, bedding, carpet, cutlery, plates, shower, pool, "
    "kitchen, glasses, pillows, bed, sink, curtains, restroom, couch, sofa, fridge, mirror, windows, walls, "
    "ceiling, hallway, elevator, chairs, menus, spoons, forks, cups, mugs, bathrooms, mattress, blinds, counter, "
    "tiles, drain, robe, slippers | washroom, linens, bathtub, chopsticks, blankets, rug"
)

OPINIONS_EN = _table("""
food positive:
    delicious, tasty, fresh, juicy, flavorful, yummy, mouthwatering, crispy, perfectly cooked, savory, tender,
    tasty and fresh, well cooked, crunchy, creamy, full of flavor, hot and fresh, finger-licking good | scrumptious,
    delectable, succulent, well seasoned, moreish
food negative:
    bland, cold, salty, overcooked, undercooked, greasy, stale, burnt, dry, tasteless, soggy, raw, too sweet, rubbery,
    lukewarm, bitter, oily, cold and dry, spoiled, watery | inedible, flavorless, mushy, rancid, unseasoned
service positive:
    friendly, attentive, kind, helpful, fast, polite, professional, welcoming, quick, prompt, efficient, courteous,
    very friendly and helpful, smiling, caring, hospitable | accommodating, gracious, considerate, cheerful, obliging
service negative:
    rude, slow, unfriendly, inattentive, careless, unhelpful, arrogant, impolite, lazy, unprofessional, dismissive,
    late, indifferent, rude and slow, clueless, grumpy, forgetful | surly, snobbish, discourteous, sluggish,
    neglectful
price positive:
    cheap, reasonable, affordable, fair, low, worth it, a bargain, budget-friendly, more than fair, worth every penny,
    very reasonable | inexpensive, a steal, economical, wallet-friendly
price negative:
    expensive, overpriced, too high, steep, not worth it, pricey, a rip-off, outrageous, unreasonable, way too much,
    too expensive, inflated | exorbitant, extortionate, costly, excessive
view positive:
    beautiful, breathtaking, stunning, gorgeous, spectacular, scenic, to die for, unforgettable, beautiful at night
    | picturesque, majestic, awe-inspiring, panoramic
view negative:
    blocked, ugly, obstructed, hidden by a wall, dull, gray, blocked by a building, nonexistent
    | unsightly, dreary, bleak, walled off
location positive:
    convenient, central, close to everything, easy to find, near the subway, walkable, well connected,
    perfectly located, close to the beach, five minutes from the station, easy to reach | handy, accessible,
    steps from the beach, well situated
location negative:
    far, remote, hard to find, inconvenient, in the middle of nowhere, far from everything, sketchy, isolated,
    too far from the station, unsafe, difficult to reach | out of the way, tricky to reach, secluded,
    miles from anything
cleanliness positive:
    clean, spotless, tidy, neat, well kept, hygienic, sparkling, very clean, clean and tidy, freshly cleaned
    | immaculate, pristine, squeaky clean, dust-free
cleanliness negative:
    dirty, filthy, dusty, sticky, smelly, moldy, stained, messy, unhygienic, full of hair, disgusting, unclean,
    covered in dust, never cleaned | grimy, grubby, musty, unsanitary
atmosphere positive:
    cozy, relaxing, romantic, stylish, calm, charming, lively, quiet, elegant, inviting, comfortable, peaceful,
    intimate, trendy | tranquil, soothing, homely, chic
atmosphere negative:
    noisy, loud, crowded, gloomy, cramped, stuffy, depressing, tacky, chaotic, outdated, too loud, cold and empty,
    uncomfortable | deafening, drab, claustrophobic, dingy
any positive:
    great, good, excellent, amazing, wonderful, fantastic, perfect, lovely, awesome, superb, impressive, nice,
    outstanding, brilliant, incredible, the best, really nice, top notch, exceptional, very good,
    better than expected, not bad, great as always, pretty good | terrific, stellar, splendid, marvelous, fabulous,
    phenomenal
any negative:
    bad, terrible, awful, horrible, poor, disappointing, the worst, dreadful, unacceptable, a letdown, subpar,
    pathetic, a disaster, not good, not great, very bad, worse than expected, nothing like the photos, a joke,
    not up to standard, below average | atrocious, lousy, appalling, abysmal, underwhelming, woeful
any neutral:
    okay, ok, average, so-so, acceptable, nothing special, passable, ordinary, standard, neither good nor bad,
    just okay, alright, just average, about what you would expect, so so, fine I guess, typical,
    nothing to write home about, usual | middling, unremarkable, run of the mill,
    tolerable, neither here nor there
""")

TERMS_KO = _table("""
food:
    음식, 음식, 맛, 파스타, 피자, 스테이크, 김치찌개, 된장찌개, 삼겹살, 비빔밥, 냉면, 국수, 칼국수, 떡볶이, 치킨,
    햄버거, 샐러드, 커피, 라떼, 디저트, 케이크, 빵, 초밥, 회, 돈까스, 짜장면, 짬뽕, 탕수육, 국물, 반찬, 고기, 요리,
    조식, 조식 뷔페, 뷔페, 메뉴, 밥, 만두, 라면, 불고기, 갈비, 해물탕, 소스, 와인, 맥주, 안주, 김밥, 순대국,
    크림 파스타, 새우버거, 아메리카노, 딸기 케이크, 김치, 튀김, 면, 점심, 저녁, 해산물, 생선구이, 계란말이, 떡,
    우동, 곱창, 된장국, 미역국, 갈비탕, 설렁탕, 순두부찌개, 부대찌개, 김치전, 파전, 해장국, 육개장, 잡채, 제육볶음,
    오징어볶음, 낙지볶음, 닭강정, 찜닭, 아구찜, 갈비찜, 대게, 새우, 조개구이, 연어, 참치, 장어, 오리고기, 소고기,
    목살, 차돌박이, 스시, 규동, 카레, 오므라이스, 볶음밥, 그라탕, 스프, 토스트, 베이글, 크루아상, 마카롱, 쿠키,
    타르트, 푸딩, 아이스크림, 에스프레소, 카푸치노, 녹차, 홍차, 주스, 에이드, 스무디, 칵테일, 막걸리, 소주, 하이볼,
    전골, 샤브샤브, 월남쌈, 팟타이, 똠얌꿍, 딤섬, 훠궈, 꿔바로우, 양념치킨, 감자튀김, 치즈, 버터, 과일, 야채, 쌈장,
    양념, 육수, 재료, 식사, 브런치, 런치 세트, 코스 요리, 정식, 백반, 도시락, 음료, 후식, 수프, 가지튀김, 닭발, 곰탕
    | 리조또, 쌀국수, 족발, 보쌈, 육회, 티라미수, 감자탕, 닭갈비, 마라탕, 빙수, 샌드위치, 수제비, 양꼬치
service:
    서비스, 서비스, 직원, 직원, 직원분들, 사장님, 종업원, 알바생, 응대, 체크인, 프런트, 매니저, 안내, 서빙, 주인,
    점원, 배달, 셰프, 고객센터, 룸서비스, 직원 응대, 사장님 응대, 주문 응대, 알바, 사장, 실장님, 서버, 바텐더,
    주방장, 아르바이트생, 기사님, 도어맨, 하우스키핑, 상담원, 예약 담당자, 발렛, 서빙 속도, 체크아웃, 대응,
    고객 응대, 손님 응대, 태도, 직원 태도, 음식 나오는 속도, 여자 직원, 남자 직원 | 이모님, 웨이터, 스태프,
    카운터 직원, 호텔리어, 지배인, 접객
price:
    가격, 가격, 가성비, 요금, 값, 가격대, 비용, 숙박비, 음식값, 주차비, 커피값, 금액, 점심 가격, 입장료, 술값, 밥값,
    방값, 안주 가격, 주말 요금, 1박 요금, 객실 가격, 배달비, 봉사료, 세트 가격, 디저트 가격, 음료 가격, 룸 가격,
    피자 가격, 회비 | 객실료, 이용료, 추가 요금, 메뉴 가격, 단가
view:
    전망, 뷰, 뷰, 경치, 야경, 오션뷰, 풍경, 바다 전망, 창밖 풍경, 시티뷰, 노을, 일몰, 한강뷰, 마운틴뷰, 창가 전망,
    객실 뷰, 루프탑 뷰, 바다뷰, 산 전망, 도시 전망, 강 전망, 수영장 뷰, 파노라마, 호수 전망, 창문 밖 풍경,
    스카이라인, 바다 풍경, 석양, 정원 뷰, 공원 뷰, 베란다 전망 | 조망, 리버뷰, 바깥 경관, 일출, 호수뷰
location:
    위치, 위치, 접근성, 교통, 주차장, 주차, 동네, 지하철역, 가는 길, 찾아가는 길, 버스 정류장, 주변 환경,
    역과의 거리, 대중교통, 지리적 위치, 장소, 주차 공간, 정류장, 터미널 접근성, 동선, 오는 길, 도보 거리,
    해변과의 거리, 시내 접근성, 셔틀버스, 호텔 위치, 가게 위치 | 입지, 교통편, 공항 접근성, 길목, 주변 상권
cleanliness:
    청결, 위생, 청결도, 위생 상태, 청소 상태, 청결 상태, 청소 | 청결 관리, 위생 관리, 정리 상태
atmosphere:
    분위기, 분위기, 인테리어, 음악, 조명, 매장 분위기, 좌석, 공간, 노래, 감성, 실내, 가구, 라운지, 로비, 테라스,
    정원, 매장 음악, 실내 장식, 벽지, 테이블 간격, 가게 분위기, 카페 분위기, 호텔 로비, 음향, 라이브 공연, 꽃 장식,
    플레이리스트, 전체 분위기, 야외석, 창가 자리, 디자인, 외관, 배경, 전체적인 느낌, 자리 | 무드, 선곡, 소품,
    배경음악, 내부 장식
""")
OPEN_KO = _read(
    "가게, 식당, 호텔, 카페, 여기, 이 집, 이곳, 숙소, 매장, 방, 객실, 펜션, 레스토랑, 리조트, 모텔, 게스트하우스, "
    "빵집, 고깃집, 맛집, 분식집, 이 식당, 이 호텔, 이 카페, 우리 방, 여기 호텔, 횟집, 커피숍, 룸 | 점포, 술집, "
    "여관, 국밥집"
)
CLEAN_KO = _read(
    "화장실, 욕실, 침구, 테이블, 바닥, 수건, 식기, 컵, 주방, 이불, 침대 시트, 수영장, 베개, 접시, 숟가락, 물컵, "
    "커튼, 침대, 소파, 카펫, 거실, 냉장고, 에어컨, 세면도구, 슬리퍼, 욕조, 유리잔, 포크, 젓가락, 물병, 창문, 의자, "
    "벽, 천장, 복도, 엘리베이터, 휴지통, 거울, 메뉴판, 베란다 | 샤워실, 세면대, 매트리스, 수저, 타월, 변기, 싱크대"
)

OPINIONS_KO = _table("""
food positive:
    맛있/맛있어/맛있는, 맛있/맛있어/맛있는, 신선하/신선해/신선한, 고소하/고소해/고소한, 부드럽/부드러워/부드러운,
    바삭하/바삭해/바삭한, 담백하/담백해/담백한, 촉촉하/촉촉해/촉촉한, 쫄깃하/쫄깃해/쫄깃한, 푸짐하/푸짐해/푸짐한,
    진하/진해/진한, 달콤하/달콤해/달콤한, 일품=, 꿀맛=, 맛나/맛나/맛난, 입에서 녹/입에서 녹아/입에서 녹는,
    간이 딱 맞/간이 딱 맞아/간이 딱 맞는 | 감칠맛 나/감칠맛 나/감칠맛 나는, 존맛=, 고급지/고급져/고급진,
    알차/알차/알찬, 입맛 돋우/입맛 돋워/입맛 돋우는
food negative:
    맛없/맛없어/맛없는, 맛없/맛없어/맛없는, 짜/짜/짠, 느끼하/느끼해/느끼한, 싱겁/싱거워/싱거운, 질기/질겨/질긴,
    비리/비려/비린, 퍽퍽하/퍽퍽해/퍽퍽한, 눅눅하/눅눅해/눅눅한, 차갑/차가워/차가운, 딱딱하/딱딱해/딱딱한,
    밍밍하/밍밍해/밍밍한, 식어 있/식어 있어/식어 있는, 너무 달/너무 달아/너무 단, 냄새가 심하/냄새가 심해/냄새가 심한
    | 텁텁하/텁텁해/텁텁한, 누린내 나/누린내 나/누린내 나는, 니글니글하/니글니글해/니글니글한, 푸석하/푸석해/푸석한,
    너무 시/너무 셔/너무 신
service positive:
    친절하/친절해/친절한, 친절하/친절해/친절한, 빠르/빨라/빠른, 상냥하/상냥해/상냥한, 세심하/세심해/세심한,
    정중하/정중해/정중한, 싹싹하/싹싹해/싹싹한, 신속하/신속해/신속한, 꼼꼼하/꼼꼼해/꼼꼼한, 따뜻하/따뜻해/따뜻한,
    유쾌하/유쾌해/유쾌한, 인사성 밝/인사성 밝아/인사성 밝은 | 다정하/다정해/다정한, 살갑/살가워/살가운,
    배려심 있/배려심 있어/배려심 있는, 사근사근하/사근사근해/사근사근한
service negative:
    불친절하/불친절해/불친절한, 불친절하/불친절해/불친절한, 느리/느려/느린, 무뚝뚝하/무뚝뚝해/무뚝뚝한,
    무례하/무례해/무례한, 불쾌하/불쾌해/불쾌한, 퉁명스럽/퉁명스러워/퉁명스러운, 성의 없/성의 없어/성의 없는,
    건방지/건방져/건방진, 늦/늦어/늦은, 무성의하/무성의해/무성의한, 오래 걸리/오래 걸려/오래 걸리는
    | 쌀쌀맞/쌀쌀맞아/쌀쌀맞은, 싸가지 없/싸가지 없어/싸가지 없는, 미숙하/미숙해/미숙한, 거만하/거만해/거만한
price positive:
    저렴하/저렴해/저렴한, 저렴하/저렴해/저렴한, 싸/싸/싼, 합리적=, 착하/착해/착한, 부담 없/부담 없어/부담 없는,
    저렴한 편= | 알뜰하/알뜰해/알뜰한, 경제적=, 혜자스럽/혜자스러워/혜자스러운
price negative:
    비싸/비싸/비싼, 비싸/비싸/비싼, 부담스럽/부담스러워/부담스러운, 과하/과해/과한, 사악하/사악해/사악한,
    터무니없/터무니없어/터무니없는, 높/높아/높은, 아깝/아까워/아까운, 비싼 편=, 너무 세/너무 세/너무 센, 바가지=
    | 어마어마하/어마어마해/어마어마한, 값비싸/값비싸/값비싼, 후덜덜하/후덜덜해/후덜덜한, 과도하/과도해/과도한
view positive:
    아름답/아름다워/아름다운, 예쁘/예뻐/예쁜, 예쁘/예뻐/예쁜, 멋지/멋져/멋진, 탁 트이/탁 트여/탁 트인,
    시원하/시원해/시원한, 그림 같/그림 같아/그림 같은, 눈부시/눈부셔/눈부신, 한눈에 보이/한눈에 보여/한눈에 보이는
    | 장관=, 황홀하/황홀해/황홀한, 절경=, 수려하/수려해/수려한
view negative:
    막혀 있/막혀 있어/막혀 있는, 답답하/답답해/답답한, 안 보이/안 보여/안 보이는, 가려져 있/가려져 있어/가려져 있는,
    흐리/흐려/흐린, 볼품없/볼품없어/볼품없는, 삭막하/삭막해/삭막한, 볼 게 없/볼 게 없어/볼 게 없는
    | 꽉 막히/꽉 막혀/꽉 막힌, 칙칙하/칙칙해/칙칙한, 휑하/휑해/휑한
location positive:
    가깝/가까워/가까운, 가깝/가까워/가까운, 편리하/편리해/편리한, 편하/편해/편한,
    접근하기 쉽/접근하기 쉬워/접근하기 쉬운, 찾기 쉽/찾기 쉬워/찾기 쉬운, 역세권=,
    중심가에 있/중심가에 있어/중심가에 있는, 역에서 가깝/역에서 가까워/역에서 가까운, 넉넉하/넉넉해/넉넉한 | 코앞=,
    수월하/수월해/수월한, 용이하/용이해/용이한
location negative:
    멀/멀어/먼, 멀/멀어/먼, 불편하/불편해/불편한, 외지/외져/외진, 찾기 어렵/찾기 어려워/찾기 어려운,
    복잡하/복잡해/복잡한, 애매하/애매해/애매한, 외딴 곳에 있/외딴 곳에 있어/외딴 곳에 있는,
    역에서 멀/역에서 멀어/역에서 먼, 찾기 힘들/찾기 힘들어/찾기 힘든 | 까다롭/까다로워/까다로운, 험하/험해/험한,
    동떨어져 있/동떨어져 있어/동떨어져 있는
cleanliness positive:
    깨끗하/깨끗해/깨끗한, 깨끗하/깨끗해/깨끗한, 깔끔하/깔끔해/깔끔한, 청결하/청결해/청결한, 위생적=,
    반짝반짝하/반짝반짝해/반짝반짝한, 정돈되어 있/정돈되어 있어/정돈되어 있는, 잘 관리되/잘 관리돼/잘 관리된
    | 말끔하/말끔해/말끔한, 쾌적하/쾌적해/쾌적한, 먼지 하나 없/먼지 하나 없어/먼지 하나 없는,
    뽀송뽀송하/뽀송뽀송해/뽀송뽀송한
cleanliness negative:
    더럽/더러워/더러운, 더럽/더러워/더러운, 지저분하/지저분해/지저분한, 냄새나/냄새나/냄새나는,
    끈적거리/끈적거려/끈적거리는, 먼지 많/먼지 많아/먼지 많은, 곰팡이 피어 있/곰팡이 피어 있어/곰팡이 피어 있는,
    비위생적=, 얼룩져 있/얼룩져 있어/얼룩져 있는, 찝찝하/찝찝해/찝찝한, 머리카락이 있/머리카락이 있어/머리카락이 있는
    | 꼬질꼬질하/꼬질꼬질해/꼬질꼬질한, 불결하/불결해/불결한, 퀴퀴하/퀴퀴해/퀴퀴한
atmosphere positive:
    아늑하/아늑해/아늑한, 편안하/편안해/편안한, 조용하/조용해/조용한, 감성적=, 세련되/세련돼/세련된,
    로맨틱하/로맨틱해/로맨틱한, 고급스럽/고급스러워/고급스러운, 아기자기하/아기자기해/아기자기한,
    따스하/따스해/따스한, 활기차/활기차/활기찬, 감각적=, 잔잔하/잔잔해/잔잔한 | 포근하/포근해/포근한,
    운치 있/운치 있어/운치 있는, 차분하/차분해/차분한, 고즈넉하/고즈넉해/고즈넉한
atmosphere negative:
    시끄럽/시끄러워/시끄러운, 시끄럽/시끄러워/시끄러운, 어수선하/어수선해/어수선한, 좁/좁아/좁은, 어둡/어두워/어두운,
    촌스럽/촌스러워/촌스러운, 산만하/산만해/산만한, 우울하/우울해/우울한, 정신없/정신없어/정신없는, 낡/낡아/낡은
    | 소란스럽/소란스러워/소란스러운, 썰렁하/썰렁해/썰렁한, 음침하/음침해/음침한, 비좁/비좁아/비좁은
any positive:
    좋/좋아/좋은, 좋/좋아/좋은, 좋/좋아/좋은, 훌륭하/훌륭해/훌륭한, 최고=, 최고=, 완벽하/완벽해/완벽한,
    만족스럽/만족스러워/만족스러운, 괜찮/괜찮아/괜찮은, 대단하/대단해/대단한, 끝내주/끝내줘/끝내주는,
    뛰어나/뛰어나/뛰어난, 나쁘지 않/나쁘지 않아/나쁘지 않은, 인상적=, 마음에 들/마음에 들어/마음에 드는, 감동적=,
    대박= | 환상적=, 흠잡을 데 없/흠잡을 데 없어/흠잡을 데 없는, 굉장하/굉장해/굉장한, 탁월하/탁월해/탁월한
any negative:
    나쁘/나빠/나쁜, 별로=, 별로=, 실망스럽/실망스러워/실망스러운, 최악=, 엉망=, 형편없/형편없어/형편없는,
    아쉽/아쉬워/아쉬운, 부족하/부족해/부족한, 불만족스럽/불만족스러워/불만족스러운, 구리/구려/구린,
    좋지 않/좋지 않아/좋지 않은, 기대 이하=, 안 좋/안 좋아/안 좋은, 문제 많/문제 많아/문제 많은, 떨어지/떨어져/떨어지는
    | 끔찍하/끔찍해/끔찍한, 꽝=, 한심하/한심해/한심한, 허접하/허접해/허접한
any neutral:
    보통=, 보통=, 무난하/무난해/무난한, 평범하/평범해/평범한, 그저 그렇/그저 그래/그저 그런,
    그냥 그렇/그냥 그래/그냥 그런, 쏘쏘=, 평균=, 나쁘지도 좋지도 않/나쁘지도 좋지도 않아/나쁘지도 좋지도 않은,
    특별한 건 없/특별한 건 없어/특별한 건 없는, 그냥저냥=, 적당하/적당해/적당한,
    특별할 것 없/특별할 것 없어/특별할 것 없는, 쏘쏘하/쏘쏘해/쏘쏘한 | 그럭저럭=, 중간=,
    고만고만하/고만고만해/고만고만한, 평이하/평이해/평이한
""")

# Short opinions that Korean reviews say in English or in one word, behind a target without a particle or with one.
BLUNT_KO = {
    "positive": Words(
        ("굿", "굿굿", "짱", "대박", "최고", "good", "very good", "perfect", "베스트", "nice", "강추", "👍", "합격")
    ),
    "negative": Words(("별로", "최악", "노답", "bad", "so bad", "에바", "실망", "비추", "👎", "worst", "탈락", "헬")),
    "neutral": Words(("보통", "쏘쏘", "soso", "평범", "so so", "그냥 그럼", "중간 정도")),
}

# What is said of a whole visit, or of nothing in particular; none of it has a target.
OVERALL_EN = {
    "positive": _read(
        "I loved it, highly recommended, we will definitely come back, would recommend to everyone, best night ever, "
        "overall a great experience, I can't wait to return, so happy with our visit, five stars, love this place, "
        "it exceeded our expectations, everything was perfect, one of my favorite places, delicious, great, good, "
        "perfect stay, amazing, I like it, will be back for sure | we left with a smile, "
        "already planning the next visit"
    ),
    "negative": _read(
        "never again, would not recommend, very disappointed, we will not come back, avoid this place, one star, "
        "overall a terrible experience, I want my money back, don't waste your time, I hated it, what a letdown, "
        "worst experience ever, stay away, we left early, bad, terrible, not worth a visit, too expensive, awful, "
        "I regret coming here, I don't recommend it | we left hungry and angry, save yourself the trouble"
    ),
    "neutral": _read(
        "overall it was okay, it was an average experience, nothing special, so so, not sure if I will return, "
        "three stars, neither good nor bad, it is what it is, okay, it was fine I guess | could go either way"
    ),
}
OVERALL_KO = {
    "positive": _read(
        "또 갈게요, 재방문 의사 있어요, 강력 추천합니다, 추천해요, 다음에 또 오고 싶어요, 정말 만족했어요, "
        "너무 좋았어요, 최고예요, 맛있어요, "
        "인생 맛집이에요, 꼭 다시 올 거예요, 대만족입니다, 잘 먹고 갑니다, 좋아요, 기분 좋게 쉬다 왔어요, "
        "별 다섯 개, 완전 추천, 단골 될 것 같아요, "
        "행복한 시간이었어요, 기대 이상이었어요, 굿, 좋아용, 마음에 들어요 | 벌써 다음 방문이 기다려져요, 엄지척"
    ),
    "negative": _read(
        "다시는 안 가요, 재방문 의사 없어요, 비추합니다, 추천하지 않아요, 돈 아까워요, 너무 실망했어요, 별로예요, "
        "최악이에요, 맛없어요, "
        "두 번 다시 안 갑니다, 기분만 상했어요, 환불받고 싶어요, 왜 인기 있는지 모르겠어요, 별 한 개도 아까워요, "
        "가지 마세요, 후회했어요, 좋지 않아요, "
        "시간 낭비였어요, 기대 이하였어요, 안 좋아요, 싫어요 | 발길을 끊으려고요, 화만 나요"
    ),
    "neutral": _read(
        "그냥 그래요, 보통이에요, 무난해요, 나쁘지도 좋지도 않아요, 한 번쯤은 가볼 만해요, 그저 그랬어요, 쏘쏘, "
        "특별한 건 없었어요, 평범해요, "
        "잘 모르겠어요, 별 세 개 | 중간은 가요"
    ),
}
EMOJI = {
    "positive": tuple("😍😊👍❤🥰😋🤩😀😄💯👏🎉✨😁💕🙂"),
    "negative": tuple("😡👎😭🤮😞😤💔😠🙁😒🤢😢"),
    "neutral": tuple("😐🤔😶🙄"),
}

# Sentences without an opinion. {t} is a target that nothing is said of.
FACTS_EN = Words(
    (
        "we went there on {day}",
        "I booked two nights",
        "it was my second visit",
        "we were a party of four",
        "we ordered the {t} and the {t}",
        "I had the {t}",
        "we arrived at 7 pm",
        "it was raining that day",
        "my friend recommended it",
        "we came for my birthday",
        "we paid by card",
        "they have {t} and {t}",
        "I asked for the {t}",
        "we sat near the door",
        "I read about it online",
        "you can choose between {t} and {t}",
        "the {t} comes with {t}",
        "I went with my parents",
        "we stayed for a weekend in {day}",
        "it opens at 9 am",
        "I asked about the {t}",
        "we shared the {t}",
        "there is a {t}",
        "my husband took the {t}",
        "hi",
        "hello",
        "does anyone know about the {t}?",
        "we waited outside",
        "the place is on the second floor",
        "I don't know",
    ),
    (
        "it was a work trip",
        "my sister picked the {t}",
        "we were there in {day}",
        "they also serve {t}",
        "our table was next to the kitchen",
        "I looked up the {t} beforehand",
    ),
)
FACTS_KO = Words(
    (
        "{day}에 다녀왔어요",
        "친구랑 같이 갔어요",
        "두 번째 방문이에요",
        "네 명이서 갔습니다",
        "{t}[을/를] 시켰어요",
        "{t}[과/와] {t}[을/를] 주문했어요",
        "저녁 7시에 도착했어요",
        "그날은 비가 왔어요",
        "친구가 알려줬어요",
        "생일이라 갔어요",
        "카드로 계산했어요",
        "{t}[이/가] 있어요",
        "{t}도 팔아요",
        "문 앞에 앉았어요",
        "인터넷에서 보고 갔어요",
        "{t}[과/와] {t} 중에 고를 수 있어요",
        "부모님이랑 갔어요",
        "2박 3일 묵었어요",
        "아침 9시에 열어요",
        "{t}[을/를] 물어봤어요",
        "{t}[을/를] 먹었습니다",
        "{t} 하나 시키고",
        "남편은 {t}[을/를] 골랐어요",
        "2층에 있어요",
        "안녕하세요",
        "{t} 아시는 분 계신가요?",
        "밖에서 기다렸어요",
        "아이들이랑 함께 방문했습니다",
        "네이버에서 예약했어요",
        "후기 남겨요",
    ),
    (
        "출장으로 갔어요",
        "동생이 {t}[을/를] 골랐어요",
        "{day}쯤 방문했습니다",
        "{t}도 나와요",
        "주방 옆자리였어요",
        "{t}[을/를] 미리 찾아봤어요",
    ),
)
# What stands around an opinion and says nothing.
FILLERS_EN = _read(
    "in my opinion, honestly, apparently, sadly, luckily, as always, for once, for the most part, that day, this time, "
    "in general, overall, compared to others, on the whole, to me, at least, for us, in the end, as usual, personally, "
    "after all, of course, at first, these days, last time | by and large, if you ask me, without a doubt"
)
FILLERS_KO = _read(
    "사실, 역시나, 확실히, 다소, 조금, 약간, 은근, 은근히, 나름, 나름대로, 정말로, 굉장히, 몹시, 무척, 훨씬, 제법, "
    "항상, 늘, 언제나, 오늘따라, 요즘, 기대보다, 소문대로, 말 그대로, 두말할 것 없이, 다른 데보다, 갈 때마다, "
    "지난번보다, 저희한테는, 아이들한테, 제 기준에는, 솔직히 말해서, 전반적으로, 이 동네에서, 다른 곳에 비해, "
    "처음부터 끝까지, 볼 때마다, 그때는, 제가 보기엔, 지금도, 예전에는, 가끔 | 어느 모로 보나, 시종일관, 단연코"
)
DAYS_EN = ("Monday", "Friday", "Saturday", "May", "August", "December", "Christmas", "the summer", "the evening")
DAYS_KO = ("월요일", "금요일", "주말", "5월", "8월", "연말", "여름휴가", "어제", "지난주", "점심시간")
