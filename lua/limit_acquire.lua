-- Take a lease in one decision over all layers, or stand in line for it, or be refused.
-- KEYS[1]  key_state     STRING  packed hot state, settings included
-- KEYS[2]  key_leases    ZSET    lease id -> expiry (ms); ended ids far above
-- KEYS[3]  key_calls     HASH    id -> what it holds ("h ...") or waits for ("w ...")
-- KEYS[4]  key_queue     ZSET    waiting id -> order (us of arrival less head start)
-- KEYS[5]  key_owners    ZSET    owner -> last seen (ms)
-- KEYS[6]  key_settings  HASH    the limit as it is set and as it was declared; never expires
-- KEYS[7]  key_history   HASH    minute -> counters so far
-- ARGV[1]  id             text, unique for each attempt
-- ARGV[2]  owner          text, whose mailbox a later grant goes to
-- ARGV[3]  cost           tokens
-- ARGV[4]  lease_ms       ms a lease lasts
-- ARGV[5]  wait_ms        ms to wait in line; 0 not at all, -1 for ever
-- ARGV[6]  hold_ms        ms a handed-over lease lasts until a beat confirms it
-- ARGV[7]  head_start_ms  ms nearer to the front of the queue
-- Returns the fence (integer) of a plain grant, or a list:
-- {1, fence, left_ms, handed, head, head_wait} granted;
-- {0, wait_ms, layers, place, handed, head, head_wait} waiting, or refused where place is 0;
-- {-1, handed, head, head_wait} the id has ended; {-2, largest, handed, head, head_wait} the cost is
-- impossible; {-9} there are no settings.
local key_state, key_leases, key_calls, key_queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_owners, key_settings, key_history = KEYS[5], KEYS[6], KEYS[7]
local id, owner = ARGV[1], ARGV[2]
local cost, lease_ms, wait_ms = ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0
local hold_ms, head_start_ms = ARGV[6] + 0, ARGV[7] + 0
-- include _time _hot _hot_acquire
-- Five calls: TIME, GET, ZADD, HSET, SET.
if taken then
-- include _hot_save
  return fence
end

-- include _state _buckets _leases _queue _acquire
if not core.begin() then
  return { -9 }
end
local answer = core.acquire(id, owner, cost, lease_ms, wait_ms, hold_ms, head_start_ms)
core.save()
return answer
