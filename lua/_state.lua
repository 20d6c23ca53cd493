-- The packed state: read, brought to logical time, rebuilt when it is missing, written.
--
-- Numbers are whole. Levels and capacities count 1/60000 of a request or token, so that one
-- millisecond refills exactly `rate` of them. Times are logical milliseconds.
local core, S = {}, {}
local floor, max, min, ceil, format = math.floor, math.max, math.min, math.ceil, string.format
local UNIT = 60000
local DEBT = 9e15 -- a level goes no lower: larger numbers would not be whole
local SENTINEL = '~' -- keeps a key, and with it its expiry, when the last member goes
local DONE, LOST = 1e15, 2e15 -- scores of ended ids: DONE + ms released or cancelled, LOST + ms expired
local REMEMBERED_MS, REMEMBERED_MAX = 60000, 100000
local HOUSE_MS = 1000
local MARGIN_MS = 60000
local HISTORY_MS = 3660000

local HOT = '^([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+)'
  .. ' ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+)'
  .. ' ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) (.*)$'
local COLD = '^' .. string.rep('([^ ]+) ', 13) .. '([^ ]+)$'

local function text(number)
  return format('%d', number)
end

-- Read the state into S; false when neither state nor settings are there.
function core.load()
  local packed = redis.call('GET', key_state)
  if not packed then
    return core.rebuild()
  end
  local waiting, pause, last, offset, due, keep, fence, flying, most, rlevel, rrate, rcap, rback,
    tlevel, trate, tcap, ttop, cost_max, refund, old_fence, old_n, old_high, new_fence, new_n,
    new_high, cold = string.match(packed, HOT)
  if not waiting then
    return core.rebuild() -- not ours, or of another version
  end
  local epoch, pause_fence, order, refusals, reclaimed, waits, wait_ms, throttles, strict, alone,
    rfloor, wait_until, head, head_at = string.match(cold, COLD)
  S = { -- at once: a table that grows field by field costs more than all the rest
    waiting = waiting + 0, pause = pause + 0, last = last + 0, offset = offset + 0, due = due + 0,
    keep = keep + 0, fence = fence + 0, flying = flying + 0, max = most + 0, rlevel = rlevel + 0,
    rrate = rrate + 0, rcap = rcap + 0, rback = rback + 0, tlevel = tlevel + 0, trate = trate + 0,
    tcap = tcap + 0, ttop = ttop + 0, cost_max = cost_max + 0, old_fence = old_fence + 0,
    old_n = old_n + 0, old_high = old_high + 0, new_fence = new_fence + 0, new_n = new_n + 0,
    new_high = new_high + 0, epoch = epoch + 0, pause_fence = pause_fence + 0, order = order + 0,
    refusals = refusals + 0, reclaimed = reclaimed + 0, waits = waits + 0, wait_ms = wait_ms + 0,
    throttles = throttles + 0, strict = strict + 0, alone = alone + 0, refund = refund + 0,
    rfloor = rfloor + 0, wait_until = wait_until + 0, head = head, head_at = head_at + 0, now = 0,
    armed = false,
  }
  core.tick()
  return true
end

-- Logical time: the clock plus an offset that grows when the clock steps back, so that time stands
-- still once and then runs on at its normal rate.
function core.tick()
  local now = clock_ms + S.offset
  if now < S.last then
    S.offset = S.offset + S.last - now
    now = S.last
  end
  S.now = now
end

-- Rate (units a millisecond; -1 unlimited, 0 closed), capacity and stored capacity of one bucket.
function core.bucket(limit, burst_ms, strict)
  if limit == '' then
    return -1, 0, 0
  end
  limit = limit + 0
  local whole = max(1, floor(limit * burst_ms / 60000))
  if limit == 0 then
    return 0, UNIT, UNIT
  elseif strict then
    return limit + 1 - whole, whole * UNIT, limit * UNIT
  end
  return limit, whole * UNIT, whole * UNIT
end

-- Take over settings (a table of texts) without touching levels.
function core.derive(set)
  S.strict = set.strict == '1' and 1 or 0
  S.alone = set.oversize == 'error' and 0 or 1
  S.refund = set.refund == '0' and 0 or 1
  S.max = set.max_concurrent == '' and -1 or set.max_concurrent + 0
  S.rrate, S.rcap = core.bucket(set.rpm, set.burst_ms, S.strict == 1)
  S.trate, S.tcap, S.ttop = core.bucket(set.tpm, set.burst_ms, S.strict == 1)
  S.cost_max = set.tpm == '' and -1 or set.tpm + 0
end

function core.settings()
  local flat = redis.call('HGETALL', key_settings)
  local set = {}
  for i = 1, #flat, 2 do
    set[flat[i]] = flat[i + 1]
  end
  return set
end

-- A missing state reads as full buckets and as many calls in flight as leases are left.
function core.rebuild()
  local set = core.settings()
  if not set.burst_ms then
    return false
  end
  S.pause, S.last, S.offset, S.due, S.keep = 0, clock_ms, 0, 0, 0
  S.epoch = time[1] * 1000000 + time[2]
  for _, record in ipairs(redis.call('HVALS', key_calls)) do -- the clock may have stepped back
    S.epoch = max(S.epoch, tonumber(string.match(record, '^h (%d+)')) or 0)
  end
  S.fence = S.epoch
  S.pause_fence, S.rback, S.rfloor, S.wait_until = 0, 0, S.epoch, 0
  S.refusals, S.reclaimed, S.waits, S.wait_ms, S.throttles = 0, 0, 0, 0, 0
  S.head, S.head_at, S.now = '-', 0, clock_ms
  core.derive(set)
  S.rlevel, S.tlevel = S.rcap, S.tcap
  core.forget_charges()
  core.recount()
  local last = redis.call('ZREVRANGEBYSCORE', key_queue, '(inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  S.order = max(clock_ms * 1000, last[2] and ceil(last[2] + 0) or 0)
  return true
end

function core.recount()
  S.flying = redis.call('ZCOUNT', key_leases, '-inf', '(' .. text(DONE))
  S.waiting = redis.call('ZCOUNT', key_queue, '-inf', '(inf')
end

function core.save()
  redis.call('SET', key_state, format(
    '%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d',
    S.waiting, S.pause, S.last, S.offset, S.due, S.keep, S.fence, S.flying, S.max, S.rlevel, S.rrate,
    S.rcap, S.rback, S.tlevel, S.trate, S.tcap, S.ttop, S.cost_max, S.refund, S.old_fence, S.old_n,
    S.old_high, S.new_fence, S.new_n, S.new_high
  ) .. format(' %d %d %d %d %d %d %d %d %d %d %d %d %s %d',
    S.epoch, S.pause_fence, S.order, S.refusals, S.reclaimed, S.waits, S.wait_ms, S.throttles,
    S.strict, S.alone, S.rfloor, S.wait_until, S.head, S.head_at), 'KEEPTTL')
  if S.armed then
    redis.call('PEXPIRE', key_state, S.armed)
  end
end
