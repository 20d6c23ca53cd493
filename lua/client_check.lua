-- Say how jobs stand, for a producer that has had no news of them.
-- KEYS[1+] pairs  a job's HASH and its outcomes' HASH, in turns
-- Returns for each job two items: its status ("" if its hash is gone), and how many outcomes it has.
local pairs_of_keys = KEYS

local standing = {}
for at = 1, #pairs_of_keys, 2 do
    local status = redis.call("HGET", pairs_of_keys[at], "status")
    standing[at] = status and string.sub(status, 1, 32) or ""
    standing[at + 1] = redis.call("HLEN", pairs_of_keys[at + 1])
end
return standing
