-- Release one lease and ask for another in one trip; the queue is served in between.
-- KEYS[1]  key_state     STRING  packed hot state, settings included
-- KEYS[2]  key_leases    ZSET    lease id -> expiry (ms); ended ids far above
-- KEYS[3]  key_calls     HASH    id -> what it holds ("h ...") or waits for ("w ...")
-- KEYS[4]  key_queue     ZSET    waiting id -> order (us of arrival less head start)
-- KEYS[5]  key_owners    ZSET    owner -> last seen (ms)
-- KEYS[6]  key_settings  HASH    the limit as it is set and as it was declared; never expires
-- KEYS[7]  key_history   HASH    minute -> counters so far
-- ARGV[1]  old_id         the lease to end
-- ARGV[2]  old_fence_given  its fence
-- ARGV[3]  used           tokens in all; -1 leaves the reservation
-- ARGV[4]  id             text, unique for each attempt
-- ARGV[5]  owner          text, whose mailbox a later grant goes to
-- ARGV[6]  cost           tokens
-- ARGV[7]  lease_ms       ms a lease lasts
-- ARGV[8]  wait_ms        ms to wait in line; 0 not at all, -1 for ever
-- ARGV[9]  hold_ms        ms a handed-over lease lasts until a beat confirms it
-- ARGV[10]  head_start_ms  ms nearer to the front of the queue
-- Returns {release, acquire}: what release.lua and acquire.lua would have returned, {-9} without settings.
-- Grants for the caller ride in the second.
local key_state, key_leases, key_calls, key_queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_owners, key_settings, key_history = KEYS[5], KEYS[6], KEYS[7]
local old_id, old_fence_given, used = ARGV[1], ARGV[2] + 0, ARGV[3] + 0
local id, owner = ARGV[4], ARGV[5]
local cost, lease_ms, wait_ms = ARGV[6] + 0, ARGV[7] + 0, ARGV[8] + 0
local hold_ms, head_start_ms = ARGV[9] + 0, ARGV[10] + 0
-- include _time
do
-- include _hot _hot_release
  hot = freed
-- include _hot_acquire
  if taken then
    redis.call('ZADD', key_leases, string.format('%d', 1e15 + now), old_id)
    redis.call('HDEL', key_calls, old_id)
-- include _hot_save
    return { 1, fence }
  end
end

-- include _state _buckets _leases _queue _acquire _release
if not core.begin() then
  return { -9 }
end
local fate = core.release(old_id, old_fence_given, used)
if S.waiting > 0 then
  core.serve(owner)
end
local answer = core.acquire(id, owner, cost, lease_ms, wait_ms, hold_ms, head_start_ms)
if type(answer) == 'number' and core.rides() then
  answer = { 1, answer, lease_ms, handed, head_id, head_wait }
end
core.save()
return { fate, answer }
