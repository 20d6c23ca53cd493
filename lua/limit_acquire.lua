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
-- include _time

-- The fast path: nobody waits, nothing is paused, no housekeeping is due, everything fits.
-- Five calls: GET, TIME, ZADD, HSET, SET. It decides as _acquire does, which see for the reasons.
local packed = redis.call('GET', key_state)
if packed then
  local last, offset, due, keep, fence, flying, most, rlevel, rrate, rcap, rback, tlevel, trate,
    tcap, ttop, cost_max, old_fence, old_n, old_high, new_fence, new_n, new_high, cold =
    string.match(packed, '^0 0 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%-?%d+)'
      .. ' (%-?%d+) (%-?%d+) (%d+) (%d+) (%-?%d+) (%-?%d+) (%d+) (%d+) (%-?%d+)'
      .. ' (%d+) (%d+) (%-?%d+) (%d+) (%d+) (%-?%d+) (.*)$')
  local now = last and clock_ms + offset
  if last and now >= last + 0 and now < due + 0 and now + lease_ms <= keep + 0
    and (most == '-1' or flying + 0 < most + 0) and rrate ~= '0' and trate ~= '0' then
    local fits, passed = true, now - last
    if rrate ~= '-1' then
      rlevel = math.min(rcap + 0, rlevel + rrate * passed)
      fits = rlevel >= 60000
    end
    local level = 0
    if trate ~= '-1' then
      level = math.min(tcap + 0, tlevel + trate * passed)
      fits = fits and level >= cost * 60000 and cost <= cost_max + 0
    end
    local expiry = string.format('%.0f', now + lease_ms)
    if fits and redis.call('ZADD', key_leases, 'NX', expiry, id) == 1 then
      fence = fence + 1
      if rrate ~= '-1' then
        rlevel = rlevel - 60000
      end
      if trate ~= '-1' then
        local after = level - cost * 60000
        if level >= tcap + 0 then
          old_fence, old_n, old_high, new_fence, new_n, new_high = fence, 1, after, 0, 0, 0
        else
          old_high, new_high = math.max(old_high + 0, level), math.max(new_high + 0, level)
          if old_fence == '0' then
            old_fence, old_n, old_high = fence, 1, after
          elseif new_fence == '0' then
            new_fence, new_n, new_high = fence, 1, after
          else
            new_n = new_n + 1
          end
        end
        tlevel = after
      end
      redis.call('HSET', key_calls, id,
        string.format('h %.0f %.0f %.0f %.0f', fence, cost, rlevel - rback, now))
      redis.call('SET', key_state, string.format(
        '0 0 %.0f %s %.0f %s %.0f %.0f %s %.0f %s %s %s %.0f %s %s %s %s %.0f %.0f %.0f %.0f %.0f %.0f %s',
        now, offset, math.min(due + 0, now + lease_ms), keep, fence, flying + 1, most, rlevel, rrate,
        rcap, rback, tlevel, trate, tcap, ttop, cost_max, old_fence, old_n, old_high, new_fence,
        new_n, new_high, cold), 'KEEPTTL')
      return fence
    end
  end
end

-- include _state _buckets _leases _queue _acquire
if not core.begin() then
  return { -9 }
end
local answer = core.acquire(id, owner, cost, lease_ms, wait_ms, hold_ms, head_start_ms)
core.save()
return answer
