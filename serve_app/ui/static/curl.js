// The request as a command for a POSIX shell. Texts and file names may hold anything.

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/**
 * The command.
 *
 * Files are read where the command runs: the body then comes through a here-document in which the shell expands the
 * files' command substitutions and nothing else.
 *
 * @param files names of the files whose base64 `body` holds, each as the string that `mark` made.
 */
export function curl(url, body, { timeout, withKey, files = [] } = {}) {
  const lines = [`curl -s ${quoted(url)}`, "-H 'Content-Type: application/json'"];
  if (withKey) lines.push('-H "Authorization: Bearer $POOLSERVE_API_KEY"');
  if (timeout) lines.push(`-H 'X-Request-Timeout-Ms: ${Number(timeout)}'`);
  const json = JSON.stringify(body);
  if (!files.length) return [...lines, `-d ${quoted(json)}`].join(" \\\n  ");
  let text = json.replace(/[$`!]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
  text = text.replaceAll("\\", "\\\\");
  for (const { mark, name } of files) text = text.replace(mark, () => `$(base64 < ${quoted(name)} | tr -d '\\n')`);
  const end = "END_OF_BODY";
  return `${[...lines, `--data-binary @- <<${end}`].join(" \\\n  ")}\n${text}\n${end}`;
}

/** A string that no caller can have written, to stand for a file in a body. */
export function mark(index) {
  const random = crypto.getRandomValues(new Uint32Array(4));
  return `file-${index}-${[...random].map((part) => part.toString(16)).join("")}`;
}
