-- Make an acquire as if it had never been, whether it waits, is granted, or has not arrived yet.
-- KEYS[1]  key_state     STRING  packed hot state, settings included
-- KEYS[2]  key_leases    ZSET    lease id -> expiry (ms); ended ids far above
-- KEYS[3]  key_calls     HASH    id -> what it holds ("h ...") or waits for ("w ...")
-- KEYS[4]  key_queue     ZSET    waiting id -> order (us of arrival less head start)
-- KEYS[5]  key_owners    ZSET    owner -> last seen (ms)
-- KEYS[6]  key_settings  HASH    the limit as it is set and as it was declared; never expires
-- KEYS[7]  key_history   HASH    minute -> counters so far
-- ARGV[1]  id         of the acquire
-- ARGV[2]  owner      text
-- ARGV[3]  timed_out  1 counts it as refused
-- Returns as release.lua does: 1 it waited or was granted, 0 it had ended or is not known.
local key_state, key_leases, key_calls, key_queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_owners, key_settings, key_history = KEYS[5], KEYS[6], KEYS[7]
local id, owner, timed_out = ARGV[1], ARGV[2], ARGV[3] == '1'
-- include _time _state _buckets _leases _queue
if not core.begin() then
  return -9
end
local fence, charged, base, granted = core.held(id)
local fate = 0
if fence then
  core.refund(fence, charged)
  core.refund_request(fence, base, granted)
  core.finish(id, fence, DONE)
  fate = 1
elseif redis.call('ZSCORE', key_queue, id) then
  core.unqueue(id, true)
  fate = 1
else
  redis.call('ZADD', key_leases, 'NX', text(DONE + S.now), id)
end
if timed_out then
  S.refusals = S.refusals + 1
end
core.close(owner)
if core.rides() then
  return { fate, handed, head_id, head_wait }
end
return fate
