-- Lift a pause and serve the queue.
-- KEYS[1]  key_state     STRING  packed hot state, settings included
-- KEYS[2]  key_leases    ZSET    lease id -> expiry (ms); ended ids far above
-- KEYS[3]  key_calls     HASH    id -> what it holds ("h ...") or waits for ("w ...")
-- KEYS[4]  key_queue     ZSET    waiting id -> order (us of arrival less head start)
-- KEYS[5]  key_owners    ZSET    owner -> last seen (ms)
-- KEYS[6]  key_settings  HASH    the limit as it is set and as it was declared; never expires
-- KEYS[7]  key_history   HASH    minute -> counters so far
-- ARGV[1]  owner  text
-- Returns ms that were left of the pause, -9 without settings; or {that, handed, head, head_wait}.
local key_state, key_leases, key_calls, key_queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_owners, key_settings, key_history = KEYS[5], KEYS[6], KEYS[7]
local owner = ARGV[1]
-- include _time _state _buckets _leases _queue
if not core.begin() then
  return -9
end
local left = max(0, S.pause - S.now)
S.pause = 0
core.close(owner)
if core.rides() then
  return { left, handed, head_id, head_wait }
end
return left
