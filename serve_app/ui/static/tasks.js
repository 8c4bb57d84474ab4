// What each task asks for and answers: the route, the body's fields, an example, words for the form.

const BOOTS = [
  "Light mesh running shoes for summer roads.",
  "Insulated waterproof boots for winter hiking, warm lining and a grippy sole.",
  "How to return an order: print the label and drop the parcel within 30 days.",
  "Leather ankle boots for the office.",
  "Wool socks that keep your feet warm on winter walks.",
];

export const TASKS = {
  rerank: { about: "A reranker: reads the query and each document together.", ranks: true, kinds: ["texts"] },
  image_rank: { about: "An image ranker: reads the query and each picture together.", ranks: true, kinds: ["images"] },
  embed: {
    about: "An embedding model: a vector per input. Ranks by cosine; some read pictures as well.",
    ranks: true, compares: true, kinds: ["texts", "images"],
  },
  classify: { about: "A classifier: the probability of each label for each text.", inputs: "Texts", kinds: ["texts"] },
  absa: { about: "Aspect-based sentiment: which words speak of what, and how.", inputs: "Texts", kinds: ["texts"] },
};

export const EXAMPLES = {
  rank: { query: "waterproof hiking boots for winter", texts: BOOTS },
  pictures: { query: "red circle" },
  compare: { texts: ["red boots", "rote Stiefel", "winter shoes", "a phone case"] },
  classify: { texts: ["I forgot my password and cannot log in", "waterproof boots size 42", "where is my parcel?"] },
  absa: { texts: ["The pasta was great 😀, but the waiter was rude.", "음식이 맛있어요. 서비스는 별로였어요."] },
};

/** Which form a task and the switches ask for: rank, compare, classify or absa. */
export function mode(task, what) {
  const has = TASKS[task];
  if (has?.ranks) return has.compares && what === "compare" ? "compare" : "rank";
  return task;
}

/**
 * Route and body of a request.
 *
 * @param items strings, or {image: string}
 */
export function request(kind, form, items) {
  const body = { model: form.model };
  if (kind === "rank") Object.assign(body, { query: form.query, documents: items });
  else if (kind === "absa") body.inputs = items;
  else body.input = items;
  if (kind === "rank" && form.top) body.top_n = form.top;
  if ((kind === "rank" || kind === "classify") && form.raw) body.raw_scores = true;
  if (kind === "absa" && form.aspects.length) body.aspects = form.aspects;
  if (kind === "absa" && form.threshold !== null) body.threshold = form.threshold;
  if (form.refuse) body.truncate = false;
  const path = { rank: "v1/rerank", compare: "v1/embeddings", classify: "v1/classify", absa: "v1/absa" }[kind];
  return { path, body };
}
