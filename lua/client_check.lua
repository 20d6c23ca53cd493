-- Say how jobs stand, for a producer that has had no news of them.
-- KEYS[1+] pairs  a job's HASH and its outcomes' HASH, in turns
-- Returns for each job two items: its status ("" if its hash is gone), and how many outcomes it has.
local pairs_of_keys = KEYS

local standing = {}
for at = 1, #pairs_of_keys, 2 do
    -- a key of another type counts as gone: it must not hide how the other jobs stand
    local status = redis.pcall("HGET", pairs_of_keys[at], "status")
    local outcomes = redis.pcall("HLEN", pairs_of_keys[at + 1])
    standing[at] = type(status) == "string" and string.sub(status, 1, 32) or ""
    standing[at + 1] = type(outcomes) == "number" and outcomes or 0
end
return standing
