# redis-py with its defaults against the server at the port that is the first argument.
import sys

import redis

r = redis.Redis(port=int(sys.argv[1]), client_name="py")
assert r.ping()
assert r.set("py:key", "value", ex=100) is True
assert r.get("py:key") == b"value"
assert r.get("py:none") is None
assert r.client_getname() == "py", r.client_getname()
assert r.hset("py:hash", mapping={"a": 1, "b": 2}) == 2
assert r.hgetall("py:hash") == {b"a": b"1", b"b": b"2"}
assert r.sadd("py:set", "x", "y") == 2
assert r.smembers("py:set") == {b"x", b"y"}
assert r.config_get("save") == {"save": ""}
assert r.info()["redis_version"]
with r.pipeline() as p:  # a transaction
    assert p.incr("py:n").incr("py:n").execute() == [1, 2]
with r.pipeline() as p:
    p.watch("py:key")
    r.set("py:key", "other")
    p.multi()
    p.get("py:key")
    try:
        p.execute()
        raise AssertionError("a watched key has changed")
    except redis.WatchError:
        pass
assert [v for v in r.pipeline(transaction=False).set("py:a", 1).get("py:a").execute()] == [True, b"1"]
print("done")
