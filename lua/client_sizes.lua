-- Weigh the next entries of a stream without handing them out.
-- KEYS[1]  stream  STREAM  a producer's replies
-- ARGV[1]  after   id of the last entry that was read
-- ARGV[2]  count   entries to weigh at most
-- Returns a flat list: id, bytes, id, bytes ...
local stream = KEYS[1]
local after, count = ARGV[1], ARGV[2]

local weights = {}
for _, entry in ipairs(redis.call("XRANGE", stream, "(" .. after, "+", "COUNT", count)) do
    local bytes = 0
    for _, text in ipairs(entry[2]) do
        bytes = bytes + #text
    end
    weights[#weights + 1] = entry[1]
    weights[#weights + 1] = bytes
end
return weights
