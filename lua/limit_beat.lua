-- Keep alive all that one owner has, serve the queue, and say what became of its ids.
-- KEYS[1]  key_state     STRING  packed hot state, settings included
-- KEYS[2]  key_leases    ZSET    lease id -> expiry (ms); ended ids far above
-- KEYS[3]  key_calls     HASH    id -> what it holds ("h ...") or waits for ("w ...")
-- KEYS[4]  key_queue     ZSET    waiting id -> order (us of arrival less head start)
-- KEYS[5]  key_owners    ZSET    owner -> last seen (ms)
-- KEYS[6]  key_settings  HASH    the limit as it is set and as it was declared; never expires
-- KEYS[7]  key_history   HASH    minute -> counters so far
-- ARGV[1]  owner  text
-- ARGV[2]  held   how many leases follow, four arguments each: id, fence, cost, lease_ms
-- Returns {next_ms, handed, head, head_wait, lost ids, unknown ids, granted}: next_ms until something
-- can change by itself (-1 nothing will); granted is id, fence, left_ms for waiting ids that hold a
-- lease by now; unknown ids wait no more and are to be asked for again. {-9} without settings.
local key_state, key_leases, key_calls, key_queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_owners, key_settings, key_history = KEYS[5], KEYS[6], KEYS[7]
local owner, held = ARGV[1], ARGV[2] + 0
local first_waiting = 3 + 4 * held
-- include _time _state _buckets _leases _queue
if not core.begin() then
  return { -9 }
end

-- A lease that Redis forgot with its data is written again, over the maximum if need be, so that
-- the count of calls in flight becomes true.
local function extend(id, fence, cost, lease_ms)
  local expiry = S.now + lease_ms
  local score = redis.call('ZSCORE', key_leases, id)
  local fate = core.fate(score)
  if fate == 1 then
    local own = core.held(id)
    if own and own ~= fence then
      return false
    elseif expiry > score + 0 then
      redis.call('ZADD', key_leases, text(expiry), id)
    end
  elseif not fate and fence <= S.epoch then
    redis.call('ZADD', key_leases, text(expiry), id)
    redis.call('HSET', key_calls, id, format('h %d %d 0 %d', fence, cost, S.now))
    S.flying = S.flying + 1
    S.due = min(S.due, expiry)
  else
    return fate == 0
  end
  core.reach(expiry)
  return true
end

local lost, unknown, granted = {}, {}, {}
for i = 3, first_waiting - 1, 4 do
  if not extend(ARGV[i], ARGV[i + 1] + 0, ARGV[i + 2] + 0, ARGV[i + 3] + 0) then
    table.insert(lost, ARGV[i])
  end
end
if first_waiting <= #ARGV then
  redis.call('ZADD', key_owners, text(S.now), owner)
end
if S.waiting > 0 then
  core.serve(owner)
end
for i = first_waiting, #ARGV do
  local id = ARGV[i]
  local score = redis.call('ZSCORE', key_leases, id)
  local fate = core.fate(score)
  if fate == 1 then
    table.insert(granted, id)
    table.insert(granted, core.held(id) or 0)
    table.insert(granted, max(1, score - S.now))
  elseif fate or not redis.call('ZSCORE', key_queue, id) then
    table.insert(unknown, id)
  end
end

local next_ms = -1
if S.waiting > 0 then
  local soonest = redis.call('ZRANGE', key_leases, 0, 0, 'WITHSCORES')
  if soonest[2] and soonest[2] + 0 < DONE then
    next_ms = max(1, soonest[2] - S.now)
  end
  local head = redis.call('ZRANGE', key_queue, 0, 0)[1]
  local waiter = core.waiter(head)
  if waiter and waiter.owner ~= owner then
    local seen = redis.call('ZSCORE', key_owners, waiter.owner) or 0
    local silent = max(1, seen + SILENT_MS - S.now)
    next_ms = next_ms < 0 and silent or min(next_ms, silent)
  end
end
core.save()
return { next_ms, handed, head_id, head_wait, lost, unknown, granted }
