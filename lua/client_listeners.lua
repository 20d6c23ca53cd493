-- Say whether anybody listens on a queue.
-- KEYS[1]  workers    SET     RQ's names of the workers that listen on the queue
-- KEYS[2]  suspended  STRING  there while workers are told to take nothing
-- Returns two items: how many of at most 500 workers live, and 1 if they are suspended.
local workers, suspended = KEYS[1], KEYS[2]

local living = 0
local found = redis.pcall("SSCAN", workers, "0", "COUNT", "500")
for _, worker in ipairs(found[2] or {}) do
    living = living + redis.call("EXISTS", worker)
end
return { living, redis.call("EXISTS", suspended) }
