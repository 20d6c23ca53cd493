-- Say what a held lease has used so far; it only rises, and what exceeds the reservation is charged.
-- KEYS[1]  key_state     STRING  packed hot state, settings included
-- KEYS[2]  key_leases    ZSET    lease id -> expiry (ms); ended ids far above
-- KEYS[3]  key_calls     HASH    id -> what it holds ("h ...") or waits for ("w ...")
-- KEYS[4]  key_queue     ZSET    waiting id -> order (us of arrival less head start)
-- KEYS[5]  key_owners    ZSET    owner -> last seen (ms)
-- KEYS[6]  key_settings  HASH    the limit as it is set and as it was declared; never expires
-- KEYS[7]  key_history   HASH    minute -> counters so far
-- ARGV[1]  id     the lease
-- ARGV[2]  fence  its fence
-- ARGV[3]  used   tokens in all so far
-- ARGV[4]  owner  text
-- Returns as release.lua does.
local key_state, key_leases, key_calls, key_queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_owners, key_settings, key_history = KEYS[5], KEYS[6], KEYS[7]
local id, fence, used, owner = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4]
-- include _time _state _buckets _leases _queue _release
if not core.begin() then
  return -9
end
local own, charged, base, granted = core.held(id)
local fate
if own then
  fate = own == fence and 1 or -1
  if fate == 1 and used > charged then
    core.overage(used - charged)
    redis.call('HSET', key_calls, id, format('h %d %d %d %d', fence, used, base, granted))
  end
else
  fate = core.fate(redis.call('ZSCORE', key_leases, id))
  fate = fate or (fence <= S.epoch and 0 or -1)
end
core.close(owner)
if core.rides() then
  return { fate, handed, head_id, head_wait }
end
return fate
