-- Pause every process after an upstream said when to come back.
-- KEYS[1]  key_state     STRING  packed hot state, settings included
-- KEYS[2]  key_leases    ZSET    lease id -> expiry (ms); ended ids far above
-- KEYS[3]  key_calls     HASH    id -> what it holds ("h ...") or waits for ("w ...")
-- KEYS[4]  key_queue     ZSET    waiting id -> order (us of arrival less head start)
-- KEYS[5]  key_owners    ZSET    owner -> last seen (ms)
-- KEYS[6]  key_settings  HASH    the limit as it is set and as it was declared; never expires
-- KEYS[7]  key_history   HASH    minute -> counters so far
-- ARGV[1]  retry_ms  ms; 0 changes nothing
-- ARGV[2]  fence     of the call that was told so; 0 unknown
-- ARGV[3]  owner     text
-- Returns ms left of the pause, -9 without settings; or {that, handed, head, head_wait}.
local key_state, key_leases, key_calls, key_queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_owners, key_settings, key_history = KEYS[5], KEYS[6], KEYS[7]
local retry_ms, fence, owner = ARGV[1] + 0, ARGV[2] + 0, ARGV[3]
-- include _time _state _buckets _leases _queue
if not core.begin() then
  return -9
end
-- While a pause runs the longest end wins; once it has ended, a call granted before it began has
-- nothing new to say.
local running = S.pause > S.now
if retry_ms > 0 and (running or fence == 0 or fence > S.pause_fence) then
  if not running then
    S.pause_fence = S.fence
    S.throttles = S.throttles + 1
  end
  S.pause = max(S.pause, S.now + retry_ms)
  core.reach(S.pause)
end
local left = max(0, S.pause - S.now)
core.close(owner)
if core.rides() then
  return { left, handed, head_id, head_wait }
end
return left
