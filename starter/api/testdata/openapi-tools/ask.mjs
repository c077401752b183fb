// Asks a door by its own description: requests are made from the schemas, some are spoilt, and what comes back is held
// against the description. Settings come as JSON on stdin, findings and a summary go as JSON to stdout.
import { readFileSync } from "node:fs";
import http from "node:http";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import fc from "fast-check";
import { createGeneratorSync } from "json-schema-faker";

const settings = JSON.parse(readFileSync(0, "utf8"));
const description = settings.description;
const agent = new http.Agent({ keepAlive: true, maxSockets: settings.atOnce });

// One seed decides everything.
let state = settings.seed >>> 0;
function random() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const chance = (p) => random() < p;
const one = (list) => list[below(list.length)];

const whole = (schema) => {
  const local = (part) => JSON.parse(JSON.stringify(part).replaceAll("#/components/schemas/", "#/$defs/"));
  return { $defs: local(description.components.schemas), ...local(schema) };
};
const generator = createGeneratorSync({ seed: settings.seed, optionalsProbability: 0.5 });
const ajv = new Ajv({ strict: false, allErrors: false });
addFormats(ajv);
const checks = new Map();
function check(schema) {
  const text = JSON.stringify(schema);
  if (!checks.has(text)) checks.set(text, ajv.compile(whole(schema)));
  return checks.get(text);
}

// Numbers that JSON.stringify cannot write stand in strings of this form until the text is made.
const raw = (text) => `@@${text}@@`;
const write = (body) => JSON.stringify(body).replace(/"@@([^"@]*)@@"/g, "$1");

const oddNumbers = ["-1", "0", "-0", "1.0", "1e0", "0.5", "1e400", "9007199254740991", "9007199254740992",
  "9223372036854775807", "9223372036854775808", "-9223372036854775809"];
const oddTexts = ["", " ", "\u0000", "a\u0000b", "\ud800", "\udc00x", "\ufeff", "\u202egnp.exe", "null", "..", "a/b", "%2e%2e",
  "'; DROP TABLE reclaim.jobs; --", "é", "\r\nX-Evil: 1", "🎬".repeat(600), "x".repeat(101), "x".repeat(2001), "y".repeat(70000)];
const oddValue = () => one([
  () => raw(one(oddNumbers)), () => one(oddTexts), () => null, () => true, () => [], () => ({}),
  () => fc.sample(fc.jsonValue({ maxDepth: 2, stringUnit: "binary" }), { numRuns: 1, seed: below(2 ** 31) })[0],
])();

// places lists every object of a value with one of its members.
function places(value, found = []) {
  if (value && typeof value === "object" && !Array.isArray(value)) {
    for (const name of Object.keys(value)) {
      found.push([value, name]);
      places(value[name], found);
    }
  }
  return found;
}

// known puts what there is into a body that was made at random, so that some requests are about something.
function known(value) {
  for (const [object, name] of places(value)) {
    if (name in settings.always) object[name] = one(settings.always[name]);
    else if (name in settings.known && chance(0.7)) object[name] = one(settings.known[name]);
  }
  return value;
}

const spoilMember = [
  (body) => { const [o, n] = one(places(body)); delete o[n]; },
  (body) => { const [o] = one(places(body)); o[one(["zzz", "", "__proto__x", "Amount", "tenant_id", "é"])] = oddValue(); },
  (body) => { const [o, n] = one(places(body)); o[n] = oddValue(); },
  (body) => { const [o, n] = one(places(body)); o[n] = oddValue(); },
  (body) => { const [o, n] = one(places(body)); o[n.toUpperCase()] = o[n]; delete o[n]; },
];
const spoilText = [
  (text) => text.slice(0, below(text.length)),
  (text) => text.replace("{", `{${text.slice(1).split(",")[0].replace(/[{}]/g, "")},`),
  (text) => text + one(["x", "{}", "\u0000", ","]),
  (text) => "\ufeff" + text,
  (text) => Buffer.concat([Buffer.from(text.slice(0, -2)), Buffer.from([0xff, 0xfe]), Buffer.from(text.slice(-2))]),
  (text) => `[${text}]`,
  () => one(["", "null", "1", '"x"', "[]", "{", "\u0000", "{}", "[".repeat(20000)]),
  (text) => text.replaceAll('"', "'"),
];

function request(operation) {
  const plain = chance(0.5);
  const made = { id: operation.id, method: operation.method, headers: { authorization: `Bearer ${settings.key}` }, valid: plain };
  const spoil = plain ? "" : one(operation.body ? ["member", "member", "member", "text", "parameter", "head"] : ["parameter", "parameter", "head"]);
  let query = [];
  let path = operation.path;
  const parameters = operation.parameters.filter((p) => p.required || chance(0.4));
  const spoilt = spoil === "parameter" && parameters.length > 0 ? one(parameters) : null;
  for (const parameter of parameters) {
    let value;
    if (parameter.name in settings.always) value = one(settings.always[parameter.name]);
    else if (parameter.name in settings.known && chance(0.8)) value = one(settings.own[operation.id]?.[parameter.name] ?? settings.known[parameter.name]);
    else value = generator.generate(whole(parameter.schema));
    value = String(value);
    if (parameter === spoilt) value = one(oddTexts);
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, escape(value));
    else if (parameter.in === "query") query.push(`${parameter.name}=${escape(value)}`);
    else if (parameter !== spoilt || chance(0.7)) made.headers[parameter.name.toLowerCase()] = Buffer.from(value).toString("latin1").replace(/[\u0000-\u001f\u007f]/g, "");
  }
  if (spoil === "parameter" && chance(0.5)) {
    query.push(one(["zzz=1", "=", "%zz", "after=-1", "limit=1e3", "state=", "state=none", "format=xml", "from=2026-13-01", "&&", "key=%00"]));
    if (chance(0.3)) query.push(...query);
  }
  made.path = path + (query.length ? `?${query.join("&")}` : "");
  if (operation.body && (operation.bodyRequired || chance(0.5))) {
    let body = known(generator.generate(whole(operation.body)));
    if (spoil === "member" && places(body).length > 0) for (let n = 1 + below(2); n > 0 && places(body).length > 0; n--) one(spoilMember)(body);
    made.text = write(body);
    if (spoil === "text") made.text = one(spoilText)(made.text);
    if (spoil === "member") made.invalid = breaks(operation.body, made.text);
    made.headers["content-type"] = "application/json";
  }
  if (spoil === "head") {
    const change = one([["content-type", "text/plain"], ["content-type", "application/json; charset=latin1"], ["content-type", "é"],
      ["accept", "application/cbor"], ["accept", "text/html;q=0"], ["accept", "%%"], ["accept-encoding", "zstd"],
      ["prefer", "wait=-1"], ["prefer", "wait=9e9"], ["prefer", ",;=,"], ["authorization", `bearer  ${settings.key} `],
      ["authorization", "Bearer rk_x"], ["authorization", "Basic YTpi"], ["x-request-id", "a b\tc"], ["content-encoding", "gzip"]]);
    made.headers[change[0]] = Buffer.from(change[1]).toString("latin1");
    if (operation.method === "POST" && change[0].startsWith("content") && made.text === undefined) made.text = "{}";
  }
  return made;
}

function escape(text) {
  return [...Buffer.from(text.toWellFormed(), "utf8")].map((b) => (/[A-Za-z0-9_:-]/.test(String.fromCharCode(b)) ? String.fromCharCode(b) : `%${b.toString(16).padStart(2, "0")}`)).join("");
}

// breaks says whether a body is not what its schema allows. Members that are null count as left out.
function breaks(schema, text) {
  let body;
  try {
    body = JSON.parse(text, (_, value) => (value === null ? undefined : value));
  } catch {
    return true;
  }
  return !check(schema)(body);
}

function send(made) {
  return new Promise((resolve) => {
    const url = new URL(settings.url);
    const options = { agent, host: url.hostname, port: url.port, method: made.method, path: made.path, headers: { ...made.headers } };
    if (made.text !== undefined) options.headers["content-length"] = Buffer.byteLength(made.text);
    const asked = http.request(options, (response) => {
      const parts = [];
      response.on("data", (part) => parts.push(part));
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) }));
      response.on("error", (error) => resolve({ fault: String(error) }));
    });
    asked.on("error", (error) => resolve({ fault: String(error) }));
    asked.end(made.text);
  });
}

// judge returns what is wrong with an answer, "" for nothing.
function judge(operation, made, answer) {
  if (answer.fault) return answer.fault;
  const { status } = answer;
  const declared = operation.responses[String(status)];
  // A submission may meet another one's run that has not charged within its time: it may be sent again.
  const later = status === 503 && operation.id === "submit-job";
  if (status >= 500 && !later) return `status ${status}`;
  if (!declared) return `status ${status} is not declared`;
  if (!answer.headers["x-request-id"]) return "no X-Request-Id";
  const type = String(answer.headers["content-type"]).split(";")[0];
  const media = declared.content?.[type];
  if (!media) return `media type ${type} is not declared for status ${status}`;
  if (status >= 300 && type !== "application/problem+json") return `status ${status} is no problem but ${type}`;
  if (type !== "text/csv") {
    let body;
    try {
      body = JSON.parse(answer.body.toString("utf8"));
    } catch (error) {
      return `the body is not JSON: ${error}`;
    }
    const valid = check(media.schema);
    if (!valid(body)) return `the body is not what is described: ${ajv.errorsText(valid.errors)}`;
    if (status >= 300 && (!body.code || !body.retry || body.status !== status)) return "the problem lacks its code, retry or status";
  }
  if (status < 300 && made.invalid) return "it was taken although the schema forbids it";
  return "";
}

const operations = [];
for (const [path, methods] of Object.entries(description.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    operations.push({
      id: operation.operationId, method: method.toUpperCase(), path, parameters: operation.parameters ?? [],
      body: operation.requestBody?.content["application/json"].schema, bodyRequired: operation.requestBody?.required,
      responses: operation.responses,
    });
  }
}
const summary = {};
const findings = [];
const strict = [];
const queue = [];
for (let n = 0; n < settings.each; n++) for (const operation of operations) queue.push(operation);
async function worker() {
  for (let operation = queue.shift(); operation; operation = queue.shift()) {
    const made = request(operation);
    const began = performance.now();
    const answer = await send(made);
    const told = (summary[operation.id] ??= { sent: 0, statuses: {}, seconds: 0 });
    told.sent++;
    told.seconds += (performance.now() - began) / 1000;
    told.statuses[answer.status ?? "none"] = (told.statuses[answer.status ?? "none"] ?? 0) + 1;
    const about = { ...made, headers: { ...made.headers, authorization: "…" }, text: made.text?.toString().slice(0, 1500) };
    const fault = judge(operation, made, answer);
    if (fault) findings.push({ fault, request: about, answer: answer.body?.toString().slice(0, 600) });
    else if (made.valid && answer.status === 400) {
      const problem = JSON.parse(answer.body);
      for (const { field, rule } of problem.fields ?? [{ field: "", rule: problem.detail }]) {
        strict.push({ operation: operation.id, field, rule, request: about });
      }
    }
  }
}
await Promise.all(Array.from({ length: settings.atOnce }, worker));
agent.destroy();
console.log(JSON.stringify({ summary, findings: findings.slice(0, 30), found: findings.length, strict }));
