-- Leases: written, ended, purged when due; and the housekeeping that keeps every key's expiry.

-- How long until the place of this call's turn expires: 0 free after all, -1 the gate is closed.
function core.place_wait()
  core.recount()
  if S.flying < S.max then
    return 0
  elseif S.max == 0 then
    return -1
  end
  local rank = S.flying - S.max
  local first = redis.call('ZRANGE', key_leases, rank, rank, 'WITHSCORES')
  return max(1, first[2] - S.now)
end

-- Write a lease that was just decided; the charge is taken in the same instant.
function core.grant(id, cost, lease_ms, written)
  S.fence = S.fence + 1
  local expiry = S.now + lease_ms
  if not written then
    redis.call('ZADD', key_leases, text(expiry), id)
  end
  local base = core.charge(cost)
  redis.call('HSET', key_calls, id, format('h %d %d %d %d', S.fence, cost, base, S.now))
  S.flying = S.flying + 1
  S.due = min(S.due, expiry)
  core.reach(expiry)
  return S.fence
end

-- Fence, charged tokens, base and time of a held lease; nil when it is not held.
function core.held(id)
  local record = redis.call('HGET', key_calls, id)
  if not record then
    return nil
  end
  local fence, charged, base, granted = string.match(record, '^h (%d+) (%d+) (%-?%d+) (%d+)$')
  if not fence then
    return nil
  end
  return fence + 0, charged + 0, base + 0, granted + 0
end

-- End a lease: remembered as DONE or LOST.
function core.finish(id, fence, mark)
  redis.call('ZADD', key_leases, text(mark + S.now), id)
  redis.call('HDEL', key_calls, id)
  S.flying = max(0, S.flying - 1)
  core.settled(fence)
end

-- Whether an id is held (1), ended (0), expired (-1) or unknown (nil), from its score.
function core.fate(score)
  if not score then
    return nil
  end
  score = score + 0
  if score < DONE then
    return 1
  end
  return score < LOST and 0 or -1
end

-- Expired leases free their place and keep their charges.
function core.purge()
  local ids = redis.call('ZRANGEBYSCORE', key_leases, '-inf', text(S.now), 'LIMIT', 0, 1000)
  for _, id in ipairs(ids) do
    core.finish(id, core.held(id) or 0, LOST)
  end
  S.reclaimed = S.reclaimed + #ids
end

-- Ids are remembered for a minute, and never more than REMEMBERED_MAX of them.
function core.forget_ids()
  local old = S.now - REMEMBERED_MS
  redis.call('ZREMRANGEBYSCORE', key_leases, text(DONE), text(DONE + old))
  redis.call('ZREMRANGEBYSCORE', key_leases, text(LOST), text(LOST + old))
  local many = redis.call('ZCOUNT', key_leases, text(DONE), '(inf') - REMEMBERED_MAX
  if many > 0 then
    redis.call('ZREMRANGEBYRANK', key_leases, S.flying, S.flying + many - 1)
  end
end

-- A lease, wait or pause ends then: the keys must outlive it.
function core.reach(moment)
  if moment > S.keep then
    core.arm(moment)
  end
end

-- Set every key's expiry past all that they still have to say.
function core.arm(moment)
  local last = max(S.now + REMEMBERED_MS, S.pause, S.wait_until, moment or 0)
  local longest = redis.call('ZREVRANGEBYSCORE', key_leases, '(' .. text(DONE), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  last = max(last, longest[2] and longest[2] + 0 or 0)
  if S.rrate > 0 then
    last = max(last, S.now + ceil((S.rcap - S.rlevel) / S.rrate))
  end
  if S.trate > 0 then
    last = max(last, S.now + ceil((S.tcap - S.tlevel) / S.trate))
  end
  S.keep = last + MARGIN_MS
  S.armed = text(S.keep + MARGIN_MS - S.now)
  redis.call('ZADD', key_leases, 'inf', SENTINEL)
  redis.call('HSET', key_calls, SENTINEL, '')
  redis.call('ZADD', key_queue, 'inf', SENTINEL)
  redis.call('ZADD', key_owners, 'inf', SENTINEL)
  for _, key in ipairs({ key_leases, key_calls, key_queue, key_owners }) do
    redis.call('PEXPIRE', key, S.armed)
  end
end

-- Counters so far, under the minute of the last call before this one.
function core.remember_counters(before)
  local minute = floor(before / 60000)
  local added = redis.call('HSET', key_history, text(minute), format('%d %d %d %d %d %d %d',
    S.epoch, S.fence - S.epoch, S.refusals, S.reclaimed, S.waits, S.wait_ms, S.throttles))
  if added == 1 then
    for _, kept in ipairs(redis.call('HKEYS', key_history)) do
      if kept + 60 < minute then
        redis.call('HDEL', key_history, kept)
      end
    end
  end
  redis.call('PEXPIRE', key_history, HISTORY_MS)
end

-- Once a second, and when an expiry is due.
function core.keep_house(before)
  if S.now < S.due then
    return
  end
  core.purge()
  core.recount()
  core.forget_ids()
  redis.call('ZREMRANGEBYSCORE', key_owners, '-inf', text(S.now - REMEMBERED_MS))
  core.remember_counters(before)
  core.arm()
  local first = redis.call('ZRANGE', key_leases, 0, 0, 'WITHSCORES')
  S.due = min(S.now + HOUSE_MS, max(S.now, floor(first[2] + 0)))
end

-- What every verb begins with; false when there are no settings yet.
function core.begin()
  if not core.load() then
    return false
  end
  local before = S.last
  core.refill()
  core.keep_house(before)
  return true
end
