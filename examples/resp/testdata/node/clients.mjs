// Two clients for Node.js, each with its defaults, against the server at the port that is the first argument.
import assert from "node:assert/strict";
import { createClient } from "redis";
import Redis from "ioredis";

const port = Number(process.argv[2]);

const one = createClient({ url: `redis://127.0.0.1:${port}` });
one.on("error", (err) => { throw err; });
await one.connect();
assert.equal(await one.set("node:key", "value", { EX: 100 }), "OK");
assert.equal(await one.get("node:key"), "value");
assert.equal(await one.get("node:none"), null);
await one.hSet("node:hash", { a: "1", b: "2" });
assert.deepEqual({ ...(await one.hGetAll("node:hash")) }, { a: "1", b: "2" });
await one.sAdd("node:set", ["x", "y"]);
assert.deepEqual([...(await one.sMembers("node:set"))].sort(), ["x", "y"]);
assert.deepEqual(await one.multi().incr("node:n").incr("node:n").exec(), [1, 2]);
assert.deepEqual(await Promise.all(Array.from({ length: 1000 }, (_, i) => one.echo(`${i}`))),
  Array.from({ length: 1000 }, (_, i) => `${i}`));
await assert.rejects(one.lPush("node:key", "x"), /WRONGTYPE/);
await one.close();

const two = new Redis(port, "127.0.0.1");
assert.equal(await two.set("io:key", "value"), "OK");
assert.equal(await two.get("io:key"), "value");
assert.equal(await two.get("io:none"), null);
await two.hset("io:hash", { a: "1" });
assert.deepEqual(await two.hgetall("io:hash"), { a: "1" });
assert.deepEqual(await two.multi().incr("io:n").incr("io:n").exec(), [[null, 1], [null, 2]]);
await two.watch("io:key");
await two.set("io:key", "other");
assert.equal(await two.multi().get("io:key").exec(), null);
await two.quit();
console.log("done");
