-- End a lease, settle what it used and serve the queue.
-- KEYS[1]  key_state     STRING  packed hot state, settings included
-- KEYS[2]  key_leases    ZSET    lease id -> expiry (ms); ended ids far above
-- KEYS[3]  key_calls     HASH    id -> what it holds ("h ...") or waits for ("w ...")
-- KEYS[4]  key_queue     ZSET    waiting id -> order (us of arrival less head start)
-- KEYS[5]  key_owners    ZSET    owner -> last seen (ms)
-- KEYS[6]  key_settings  HASH    the limit as it is set and as it was declared; never expires
-- KEYS[7]  key_history   HASH    minute -> counters so far
-- ARGV[1]  id     the lease
-- ARGV[2]  fence  its fence
-- ARGV[3]  used   tokens in all; -1 leaves the reservation
-- ARGV[4]  owner  text
-- Returns 1 ended now, 0 it had ended before, -1 it was lost, -9 there are no settings;
-- or {that, handed, head, head_wait} where grants for the caller ride along.
local key_state, key_leases, key_calls, key_queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_owners, key_settings, key_history = KEYS[5], KEYS[6], KEYS[7]
local id, fence, used, owner = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4]
local old_id, old_fence_given = id, fence
-- include _time
do
-- include _hot _hot_release
  if freed then
    redis.call('ZADD', key_leases, string.format('%d', 1e15 + now), id)
    redis.call('HDEL', key_calls, id)
-- include _hot_save
    return 1
  end
end

-- include _state _buckets _leases _queue _release
if not core.begin() then
  return -9
end
local fate = core.release(id, fence, used)
core.close(owner)
if core.rides() then
  return { fate, handed, head_id, head_wait }
end
return fate
