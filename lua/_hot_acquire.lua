-- The fast path's half of an acquire: `taken` says that the new lease is written.
local taken = false
if hot and now + lease_ms <= keep + 0 and (most == '-1' or flying < most + 0) and rrate ~= '0'
  and trate ~= '0' and (rrate == '-1' or rlevel >= 60000) then
  local level = tlevel > tcap and tcap or tlevel
  local after = level - cost * 60000
  if trate == '-1' or (after >= 0 and cost <= cost_max + 0) then
    taken = redis.call('ZADD', key_leases, 'NX', string.format('%d', now + lease_ms), id) == 1
  end
  if taken then
    fence, flying = fence + 1, flying + 1
    if trate ~= '-1' then
      tlevel = after
      if level >= tcap then
        old_fence, old_n, old_high, new_fence, new_n, new_high = fence, 1, after, '0', 0, 0
      elseif old_fence == '0' then
        old_fence, old_n, old_high = fence, 1, after
      elseif new_fence == '0' then
        new_fence, new_n, new_high = fence, 1, after
      else
        new_n = new_n + 1
      end
    end
    if rrate ~= '-1' then
      rlevel = rlevel - 60000
    end
    if now + lease_ms < due + 0 then
      due = now + lease_ms
    end
    redis.call('HSET', key_calls, id,
      string.format('h %d %d %d %d', fence, cost, rlevel - rback, now))
  end
end
