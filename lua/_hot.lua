-- The fast path, before any helper is made: the state in locals, refilled to now.
-- `hot` says that nobody waits, nothing is paused and no housekeeping is due; the rules are those of
-- _buckets and _leases, which say why, and the model test holds both to the same answers.
local packed = redis.call('GET', key_state)
local last, offset, due, keep, fence, flying, most, rlevel, rrate, rcap, rback, tlevel, trate, tcap,
  ttop, cost_max, refunds, old_fence, old_n, old_high, new_fence, new_n, new_high, cold =
  string.match(packed or '', '^0 0 ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+)'
    .. ' ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+)'
    .. ' ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) (.*)$')
local now = last and clock_ms + offset
local hot = last and now >= last + 0 and now < due + 0
if hot then
  local passed = now - last
  fence, flying, rlevel, rcap, tlevel, tcap = fence + 0, flying + 0, rlevel + 0, rcap + 0, tlevel + 0, tcap + 0
  if rrate ~= '-1' then
    rlevel = rlevel + rrate * passed
    if rlevel > rcap then
      rlevel = rcap
    end
  end
  if trate ~= '-1' then
    tlevel = tlevel + trate * passed
    if tlevel > ttop + 0 then
      tlevel = ttop + 0
    end
    local seen = tlevel > tcap and tcap or tlevel
    if seen > old_high + 0 then
      old_high = seen
    end
    if seen > new_high + 0 then
      new_high = seen
    end
  end
end
